#include "tpgm/models/text_sizes.h"

#include <c10/util/Exception.h>

#include <string_view>

namespace tpgm {

int64_t usual_heads(const char* name, int64_t width) {
  constexpr int64_t kHeadWidth = 64;  // the convention of CLIP and of the ViT paper
  // ViT-H, -g and -G have 16 heads with widths of 80, 88 and 104.
  const bool image_tower = std::string_view(name) == "heads";
  if (image_tower && (width == 1280 || width == 1408 || width == 1664)) return 16;
  TORCH_CHECK(width % kHeadWidth == 0,
              "[set_defaults] neither weights nor sizes say how many heads there are, and a width of ", width,
              " is not a multiple of the usual ", kHeadWidth, "; give ", name, "=N");
  return width / kHeadWidth;
}

Size activation_size(const char* help) { return {"activation", help, &ModelConfig::activation}; }

std::vector<Size> with_text_sizes(std::vector<Size> sizes, const std::vector<Size>& more) {
  const std::vector<Size> first{
      {.name = "embedding",
       .help = "features of both towers; 0: no projection",
       .member = &ModelConfig::embedding,
       .least = 0},
      {"text_width", "token width of the text tower", &ModelConfig::text_width},
      {"text_depth", "transformer blocks of the text tower", &ModelConfig::text_depth},
      {"text_heads", "attention heads of the text tower", &ModelConfig::text_heads},
      {"text_mlp", "hidden width of the text tower's MLPs", &ModelConfig::text_mlp}};
  const std::vector<Size> last{{"vocab", "tokens of the vocabulary", &ModelConfig::vocab},
                               {"context", "tokens of a text", &ModelConfig::context},
                               {.name = "end_of_text",
                                .help = "the token that ends a text; -1: the largest",
                                .member = &ModelConfig::end_of_text,
                                .least = -1}};
  for (const auto* part : {&first, &more, &last}) sizes.insert(sizes.end(), part->begin(), part->end());
  return sizes;
}

void default_text_sizes(ModelConfig& config) {
  set_default(config.embedding, 512);
  set_default(config.text_width, 512);
  set_default(config.text_depth, 12);
  if (!config.text_heads) config.text_heads = usual_heads("text_heads", *config.text_width);
  set_default(config.text_mlp, 4 * *config.text_width);
  set_default(config.activation, Activation::kQuickGelu);
  set_default(config.eps, 1e-5);
  set_default(config.vocab, 49408);
  set_default(config.context, 77);
  set_default(config.end_of_text, -1);
}

std::shared_ptr<ClipText> make_text_tower(const ModelConfig& config) {
  return std::make_shared<ClipText>(ClipTextOptions()
                                        .context(*config.context)
                                        .vocab(*config.vocab)
                                        .width(*config.text_width)
                                        .depth(*config.text_depth)
                                        .heads(*config.text_heads)
                                        .mlp(*config.text_mlp)
                                        .embedding(*config.embedding)
                                        .activation(*config.activation)
                                        .eps(*config.eps)
                                        .end_of_text(*config.end_of_text));
}

void read_text_sizes(const Shapes& shapes, ModelConfig& config) {
  config.vocab = shapes.size("stem.token.weight", 0, 2);
  config.text_width = shapes.size("stem.token.weight", 1, 2);
  config.context = shapes.size("stem.position", 0, 2);
  config.text_depth = shapes.count("blocks.", ".norm1.weight", kTensorsOfTransformerBlock);
  config.text_mlp = shapes.size("blocks.0.mlp.fc1.weight", 0, 2);
}

}  // namespace tpgm
