// Checkpoints, configs and vocabularies that were made to harm: right names with absurd shapes, sizes that no
// file holds, JSON that nests and bombs. Each is a c10::Error that names the file, in seconds and in little
// memory, before a model of such a size is made. What is wrong with a file as such is tests/corrupt's.
#include <gtest/gtest.h>
#include <malloc.h>
#include <zlib.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "tests/corrupt/builders.h"
#include "tests/io/scratch.h"
#include "tests/torch_nn.h"
#include "tests/weights/goldens.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/models/named_models.h"
#include "tpgm/text/tokenizer.h"
#include "tpgm/text/unicode.h"
#include "tpgm/weights/read.h"

namespace tpgm {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
constexpr size_t kMiB = size_t{1} << 20;

size_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) return std::stoul(line.substr(field.size() + 1)) << 10;
  }
  return 0;
}

class CorruptModels : public test::Scratch {
 protected:
  // Runs `read`, which must refuse the files in the folder with these words.
  template <typename Read>
  void expect_refused(const std::string& what, const std::string& words, const Read& read) {
    SCOPED_TRACE(what);
    size_t size = 0;
    for (const auto& item : std::filesystem::directory_iterator(folder_)) size += item.file_size();
    ::malloc_trim(0);
    const bool measured = static_cast<bool>(std::ofstream("/proc/self/clear_refs") << 5 << std::flush);
    const size_t before = status_bytes("VmRSS:");
    const auto begin = std::chrono::steady_clock::now();
    std::string message;
    try {
      read();
    } catch (const c10::Error& error) {
      message = error.what_without_backtrace();
    } catch (const std::exception& error) {
      FAIL() << "not a c10::Error: " << error.what();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    ASSERT_FALSE(message.empty()) << "nothing was thrown";
    EXPECT_NE(message.find(words), std::string::npos) << "expected '" << words << "', got: " << message;
    EXPECT_NE(message.find(folder_.string()), std::string::npos) << "no file in: " << message;
    EXPECT_LT(message.size(), 4000U);
    EXPECT_EQ(message.find("INTERNAL ASSERT"), std::string::npos) << message;
    for (const unsigned char letter : message) EXPECT_TRUE(letter >= 0x20 || letter == '\n') << message;
    EXPECT_LT(took.count(), kSanitized ? 60 : 5) << "seconds";
    const size_t most = status_bytes("VmHWM:");
    if (!kSanitized && measured && most > before) {
      EXPECT_LE((most - before) / kMiB, size / kMiB + 64) << "MiB";
    }
  }

  void write(const std::string& name, const std::string& bytes) const {
    test::write_bytes(file(name), bytes);
  }
};

using Tensors = std::map<std::string, at::Tensor>;

// --- checkpoints -----------------------------------------------------------------------------------------

Tensors golden(const std::string& path) {
  Tensors tensors;
  const Checkpoint checkpoint(testing::golden_folder() / path);
  for (const auto& name : checkpoint.names()) tensors[name] = checkpoint.tensor(name).clone();
  return tensors;
}

struct Attack {
  std::string what;
  std::function<void(Tensors&)> change;
  std::string words;
  Metadata metadata = {};
};

class CorruptCheckpoints : public CorruptModels {
 protected:
  void attack(const std::string& source, const std::string& model, const std::vector<Attack>& attacks) {
    const Tensors good = golden(source);
    const auto path = file("model.safetensors");
    const auto wanted = model.empty() ? std::nullopt : std::optional(parse_model(model));
    const auto load = [&] {
      const auto weights = read_weights(Checkpoint(path), wanted);
      load_state_dict(*make_backbone(weights.config), weights.backbone(), {}, path);
    };
    save(path, good, {});
    EXPECT_NO_THROW(load()) << source;
    for (const auto& [what, change, words, metadata] : attacks) {
      Tensors tensors = good;
      change(tensors);
      save(path, tensors, metadata);
      expect_refused(source + ": " + what, words, load);
    }
  }
  static void save(const std::filesystem::path& path, const Tensors& tensors, const Metadata& metadata) {
    NamedTensors state("Tensor");
    for (const auto& [name, tensor] : tensors) state.insert(name, tensor.contiguous());
    save_safetensors(state, path, metadata);
  }
};

std::function<void(Tensors&)> reshape(const std::string& name, const std::vector<int64_t>& shape) {
  return [=](Tensors& tensors) {
    ASSERT_TRUE(tensors.contains(name)) << name;
    tensors[name] = at::zeros(shape);
  };
}
std::function<void(Tensors&)> drop(const std::string& name) {
  return [=](Tensors& tensors) { ASSERT_EQ(tensors.erase(name), 1U) << name; };
}
std::function<void(Tensors&)> add(const std::string& name, const std::vector<int64_t>& shape) {
  return [=](Tensors& tensors) { tensors[name] = at::zeros(shape); };
}
// With a name of its own for each.
std::function<void(Tensors&)> add_many(const std::string& before, const std::string& after, int count) {
  return [=](Tensors& tensors) {
    for (int i = 0; i < count; ++i) tensors[before + std::to_string(i) + after] = at::zeros({0});
  };
}

TEST_F(CorruptCheckpoints, Timm) {
  const Tensors good = golden("timm-vit/model.pth");
  const int64_t width = good.at("cls_token").size(2), rows = good.at("pos_embed").size(1);
  const auto in_model = "'stem.";
  attack(
      "timm-vit/model.pth", "vit:heads=2",
      {{"0-dimensional patches", reshape("patch_embed.proj.weight", {}), "is [], expected 4 dimensions"},
       {"patches without elements", reshape("patch_embed.proj.weight", {width, 3, 0, 8}), "and elements"},
       {"a width without the bytes for it", reshape("patch_embed.proj.weight", {int64_t{1} << 40, 0, 8, 8}),
        "and elements"},
       {"a patch without the bytes for it",
        reshape("patch_embed.proj.weight", {width, 3, int64_t{1} << 40, 0}), "and elements"},
       {"1-dimensional patches", reshape("patch_embed.proj.weight", {width}), "expected 4 dimensions"},
       {"patches that are not squares", reshape("patch_embed.proj.weight", {width, 3, 8, 4}), in_model},
       {"another width of the patches", reshape("patch_embed.proj.weight", {width + 2, 3, 8, 8}),
        "tensors do not fit"},
       {"a width that makes terabytes", reshape("patch_embed.proj.weight", {1 << 20, 1, 1, 1}), "do not fit"},
       {"an odd width", reshape("patch_embed.proj.weight", {33, 3, 8, 8}), "cannot be split into 2 heads"},
       {"a hidden width that makes gigabytes", reshape("blocks.0.mlp.fc1.weight", {1 << 22, 1}),
        "do not fit"},
       {"positions that are not square", reshape("pos_embed", {1, rows + 1, width}),
        "expected one and a square"},
       {"one position", reshape("pos_embed", {1, 1, width}), "expected one and a square"},
       {"positions without elements", reshape("pos_embed", {1, 1 + (int64_t{1} << 40), 0}), "and elements"},
       {"2-dimensional positions", reshape("pos_embed", {rows, width}), "expected 1 dimensions of 1 before"},
       {"0-dimensional positions", reshape("pos_embed", {}), "expected 1 dimensions of 1 before"},
       {"a token that is a vector", reshape("cls_token", {width}), "expected 2 dimensions of 1 before"},
       {"a token of no size", reshape("cls_token", {1, 1, 0}), "stem.class_token"},
       {"no patches", drop("patch_embed.proj.weight"), "are those of no model known here"},
       {"no positions", drop("pos_embed"), "'stem.position' is missing"},
       {"no first block", drop("blocks.0.norm1.weight"), "'blocks.0.norm1.weight' is missing"},
       {"no MLP", drop("blocks.0.mlp.fc1.weight"), "'blocks.0.mlp.fc1.weight' is missing"},
       {"no last bias", drop("blocks.1.mlp.fc2.bias"), "'blocks.1.mlp.fc2.bias' is in the model, but not"},
       {"q, k, v that are too few", reshape("blocks.0.attn.qkv.weight", {width, width}), "blocks.0.attn.qkv"},
       {"two final norms", add("fc_norm.weight", {width}), "is our 'norm.weight', and so is another"},
       {"a block that is not a number", add("blocks.x.norm1.weight", {width}), "'blocks.x.norm1.weight'"},
       {"a block with a leading zero", add("blocks.00.norm1.weight", {width}), "'blocks.00.norm1.weight'"},
       {"a block far away", add("blocks.99999999999999999999.norm1.weight", {width}), "blocks.999"},
       {"20,000 blocks of nothing", add_many("blocks.", ".norm1.weight", 20000),
        "not the rest of as many blocks"},
       {"20,000 heads", add_many("head.", "", 20000), "'head.0' has no place in a vit"},
       {"20,000 strangers", add_many("x", ".y", 20000), "20000 tensors do not fit"},
       {"control characters", add("patch_embed\n\x1b[31m.proj", {1}), "patch_embed??[31m"},
       {"a name of a megabyte of dots", add(std::string(1 << 20, '.'), {1}),
        "is in the file, but not in a vit"},
       {"a name of 4 MB", add("head." + std::string(4000000, 'x'), {1}), "has no place in a vit"}});
}

TEST_F(CorruptCheckpoints, NamesUnderPrefixes) {
  const auto nested = [](const std::string& prefix) {
    return [=](Tensors& tensors) {
      Tensors all;
      for (const auto& [name, tensor] : tensors) all[prefix + name] = tensor;
      all["x.y"] = at::zeros({1});  // or the prefix would be cut off by Checkpoint
      all.erase(prefix + "pos_embed");
      tensors = all;
    };
  };
  attack("timm-vit/model.pth", "vit:heads=2",
         {{"a prefix", nested("model."), "'stem.position' is missing"},
          {"prefixes in prefixes", nested("module.model.module.encoder."), "'stem.position' is missing"},
          {"a prefix of 20 kB", nested(test::repeat("a.", 10000)), "'stem.position' is missing"},
          {"half below a prefix", add("base_encoder.patch_embed.proj.weight", {1}),
           "is in the file, but not in a vit"}});
}

TEST_F(CorruptCheckpoints, Metadata) {
  const auto same = [](Tensors&) {};
  const auto said = [&](const std::string& what, const std::string& model, const std::string& words) {
    return Attack{what, same, words, {{"tpgm.model", model}}};
  };
  attack("timm-vit/model.pth", "vit:heads=2",
         {said("garbage", "\x01 garbage", "which is not a model"),
          said("nothing", "", "no model ''"),
          said("a megabyte", std::string(1 << 20, 'v'), "which is not a model"),
          said("another family", "resnet50", "is a resnet by its metadata"),
          said("CLIP", "clip-vit-b-32", "is a clip-vit by its metadata"),
          said("a script", "script:/etc/passwd", "is a script by its metadata"),
          said("a size of 2^63", "vit:width=9223372036854775808", "expected a whole number"),
          said("an unknown size", "vit:a=1", "has no 'a'"),
          {"a view of nothing", same, "crop_pct is 0, instead of", {{"tpgm.view", R"({"crop_pct":0})"}}},
          {"two means", same, "mean has 2 numbers", {{"tpgm.view", R"({"mean":[0,0]})"}}},
          {"a std of 0", same, "std is 0, instead of", {{"tpgm.view", R"({"std":[0]})"}}}});
  attack("hf-clip/model.safetensors", "clip-vit:heads=1,text_heads=1",
         {said("ResNet", "clip-resnet", "is a clip-resnet by its metadata")});
}

TEST_F(CorruptCheckpoints, HuggingFace) {
  const std::string layer = "vision_model.encoder.layers.0.self_attn.", text = "text_model.";
  const Tensors good = golden("hf-clip/model.safetensors");
  const int64_t width = good.at(layer + "q_proj.bias").size(0);
  const int64_t vocab = good.at(text + "embeddings.token_embedding.weight").size(0);
  attack(
      "hf-clip/model.safetensors", "clip-vit:heads=1,text_heads=1",
      {{"no q", drop(layer + "q_proj.weight"), "the first is missing or of another shape"},
       {"no v", drop(layer + "v_proj.bias"), "the third is missing or of another shape"},
       {"k of another shape", reshape(layer + "k_proj.weight", {width, 1}), "the second is missing or"},
       {"k of another rank", reshape(layer + "k_proj.weight", {width * width}), "the second is missing or"},
       {"q of no dimensions", reshape(layer + "q_proj.bias", {}), "the first is missing or"},
       {"a vocabulary that makes gigabytes",
        reshape(text + "embeddings.token_embedding.weight", {1 << 22, 1}), "do not fit"},
       {"no tokens", drop(text + "embeddings.token_embedding.weight"), "do not fit"},
       {"tokens without elements", reshape(text + "embeddings.token_embedding.weight", {vocab, 0}),
        "and elements"},
       {"no text projection", drop("text_projection.weight"), "'projection.weight' is in the model, but not"},
       {"a projection of one dimension", reshape("visual_projection.weight", {width}),
        "expected 2 dimensions"},
       {"no image projection", drop("visual_projection.weight"), "must be positive"},
       {"20,000 text blocks", add_many("text_model.encoder.layers.", ".layer_norm1.weight", 20000),
        "not the rest of as many blocks"}});
}

TEST_F(CorruptCheckpoints, ResNets) {
  const auto stages = [](Tensors& tensors) {
    for (int i = 5; i < 100; ++i)
      tensors["layer" + std::to_string(i) + ".0.conv1.weight"] = at::zeros({1, 1, 1, 1});
  };
  const auto blocks = [](Tensors& tensors) {
    for (int i = 1; i < 2000; ++i)
      tensors.emplace("layer2." + std::to_string(i) + ".conv1.weight", at::zeros({0}));
  };
  attack("torchvision-resnet-basic/model.pth", "",
         {{"100 stages", stages, "do not fit"},
          {"1-dimensional convolution", reshape("conv1.weight", {64}), "expected 4 dimensions"},
          {"another width", reshape("conv1.weight", {1 << 20, 1, 1, 1}), "do not fit"},
          {"2000 blocks", blocks, "not the rest of as many blocks"},
          {"no first block", drop("layer2.0.conv1.weight"), "do not fit"},
          {"no statistics", drop("bn1.running_var"), "'stem.bn1.running_var' is in the model, but not"}});
  attack("openai-clip-rn/model.pt", "clip-resnet:heads=2,text_heads=2",
         {{"positions that are not square", reshape("visual.attnpool.positional_embedding", {4, 64}),
           "expected one and a square"},
          {"no pooling", drop("visual.attnpool.positional_embedding"), "'visual.pool.position' is missing"},
          {"0-dimensional projection", reshape("text_projection", {}), "expected a matrix"},
          {"the text tower twice", add("text.token_embedding.weight", {1}), "and so is another"}});
}

TEST_F(CorruptCheckpoints, TensorsThatShareBytes) {
  std::vector<std::string> items;
  for (int i = 0; i < 300; ++i) {
    items.push_back(test::text("blocks." + std::to_string(i) + ".attn.qkv.weight"));
    items.push_back(test::tensor(test::storage("1", 1 << 18), 0, {1 << 18}, {1}));
  }
  test::write_bytes(file("model.pt"),
                    test::archive(test::pickled(test::dict(items)), {{"a/data/1", std::string(kMiB, 'x')}}));
  expect_refused("300 MiB from 1", "its tensors share bytes of the file",
                 [&] { read_weights(Checkpoint(file("model.pt"))); });
}

// --- config.json -----------------------------------------------------------------------------------------

class CorruptConfigs : public CorruptModels {
 protected:
  CorruptConfigs() {
    std::filesystem::copy_file(testing::golden_folder() / "hf-clip/model.safetensors",
                               file("model.safetensors"));
    good_ = test::read_bytes(testing::golden_folder() / "hf-clip/config.json");
  }
  void attack(const std::string& what, const std::string& bytes, const std::string& words,
              const std::string& name = "config.json") {
    write(name, bytes);
    expect_refused(what, words,
                   [&] { make_clip(read_weights(Checkpoint(file("model.safetensors"))).config); });
    std::filesystem::remove(file(name));
  }
  // The good file with another value of the last such key, which of two is the image tower's.
  void change(const std::string& key, const std::string& value, const std::string& words) {
    const size_t begin = good_.rfind("\"" + key + "\":");
    ASSERT_NE(begin, std::string::npos) << key;
    const size_t after = begin + key.size() + 3, end = good_.find_first_of(",\n}", after);
    attack(key + ": " + value.substr(0, 50), std::string(good_).replace(after, end - after, value), words);
  }
  std::string good_;
};

TEST_F(CorruptConfigs, AreRefused) {
  const std::string none = "it is not a JSON object; restore it, or remove it";
  attack("empty", "", none);
  attack("an array", "[]", none);
  attack("cut off", good_.substr(0, good_.size() / 2), none);
  attack("no UTF-8", "{\"model_type\":\"clip\xff\"}", none);
  attack("20 MB", "{" + std::string(20 * kMiB, ' ') + "}", "and a config at most");
  attack("nests as deep as it may be long", "{\"a\":" + std::string(kMiB / 2 - 100, '['), none);
  attack("arrays", "{\"a\":" + test::repeat("[],", kMiB / 6 - 10), none);
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  for (const char* key : {"hidden_size", "num_attention_heads", "hidden_act", "layer_norm_eps"}) {
    change(key, deep, std::string(key) + " is an array, expected");
    change(key, "{}", std::string(key) + " is an object, expected");
    change(key, "\"" + std::string(kMiB / 4, 'x') + "\"", "expected");
    change(key, "\"\\u001b[31m\"", "expected");
    change(key, "true", std::string(key) + " is true, expected");
  }
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
        "max_position_embeddings", "patch_size", "num_channels", "eos_token_id"}) {
    for (const char* value : {"-1", "1.5", "1099511627776", "18446744073709551615", "1e300"}) {
      change(key, value, std::string(key) + " is ");
    }
  }
  change("num_attention_heads", "0", "num_attention_heads is 0, expected a size");
  change("num_attention_heads", "7", "cannot be split into 7 heads");
  change("num_attention_heads", "16777215", "cannot be split into 16777215 heads");
  change("hidden_size", "16777215", "of other sizes");
  change("vocab_size", "16777215", "of other sizes");
  change("layer_norm_eps", "-1", "expected a number between 0 and 1");
  change("layer_norm_eps", "1e308", "expected a number between 0 and 1");
  change("hidden_act", "\"relu\"", "expected gelu or quick_gelu");
  const std::string vision = R"({"model_cfg":{"text_cfg":{"heads":2},"vision_cfg":{"width":32,"head_width":)";
  attack("no heads", vision + "65}}}", "cannot be split into 0 heads", "open_clip_config.json");
  // A file of another layout says nothing, and is no reason to refuse the weights.
  write("open_clip_config.json", vision + "0}}}");
  const auto weights =
      read_weights(Checkpoint(file("model.safetensors")), parse_model("clip-vit:heads=2,text_heads=2"));
  EXPECT_NE(weights.notes.front().find("'open_clip_config.json' beside it is not used: head_width is 0"),
            std::string::npos);
}

// --- vocabularies ----------------------------------------------------------------------------------------

class CorruptVocabularies : public CorruptModels {
 protected:
  void SetUp() override {
    try {
      require_unicode();
    } catch (const c10::Error& error) {
      GTEST_SKIP() << error.what_without_backtrace();
    }
  }
  void attack(const std::string& what, const std::string& bytes, const std::string& words) {
    write("file", bytes);
    write("merges.txt", "a b</w>\n");
    expect_refused(what, words, [&] { Tokenizer{file("file")}; });
  }
  static std::string packed(const std::string& text, size_t count) {
    uLong sum = crc32(0, nullptr, 0);
    for (size_t i = 0; i < count; ++i) {
      sum = crc32(sum, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size()));
    }
    return std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10) + test::deflated(text, count) +
           test::number(static_cast<uint32_t>(sum)) +
           test::number(static_cast<uint32_t>(text.size() * count));
  }
};

TEST_F(CorruptVocabularies, AreRefused) {
  const std::string special = R"("<|startoftext|>":2,"<|endoftext|>":3)";
  attack("a gap", R"({"a":0,"b":9,)" + special + "}", "has the id 9, and there are 4 tokens");
  attack("an id twice", R"({"a":0,"b":0,)" + special + "}", "and so has another");
  attack("an id of 2^31", R"({"a":2147483648})", "has the id 2147483648");
  attack("an id of 2^64", R"({"a":18446744073709551616})", "found other JSON");
  attack("a negative id", R"({"a":0,"b":-1})", "'<|startoftext|>' is not there");
  attack("nothing", "", "found none");
  attack("nested", "{\"a\":" + std::string(1 << 19, '['), "nests more than 20 levels");
  attack("a string of 5 MB", "{\"" + std::string(5 * kMiB, 'a') + "\":0}", "a string is longer than");
  attack("a line of 60 MB", "title\n" + std::string(60 * kMiB, 'a'), "two tokens on a line");
  attack("tokens of megabytes", "title\n" + test::repeat(std::string(kMiB, 'a') + " b\n", 30), "twice");
  attack("8 MB of tokens",
         "{" + test::fill(8 * kMiB, [](size_t i) { return "\"" + std::to_string(i) + "\":0,"; }) + "\"a\":0}",
         "more memory than");
  attack("a bomb", packed(std::string(kMiB, ' '), 1000), "it unpacks to more than 16 MiB");
  attack("a bomb of lines", packed(test::repeat("a b\n", kMiB / 4), 15), "it has the token 'ab' twice");
  attack("a bomb of JSON", packed("{" + std::string(kMiB, ' '), 15), "is longer than");
  attack("a bomb of short lines", packed(test::repeat("\n", kMiB), 15), "found none");
}

}  // namespace
}  // namespace tpgm
