// `tpgm convert`: any checkpoint into safetensors.
#include "tpgm/checkpoints/convert.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "tools/command.h"
#include "tools/progress.h"
#include "tools/text.h"
#include "tpgm/io/untrusted.h"

namespace tpgm::tools {
namespace {

struct Arguments {
  std::string input, output, key, dtype, shard_size;
  std::vector<std::string> renames, only, exclude;
  bool keep_prefix = false;
};

int convert(const Arguments& args) {
  ConvertOptions options;
  options.only(args.only).exclude(args.exclude);
  if (!args.dtype.empty()) options.dtype(parse_dtype(args.dtype));
  if (!args.shard_size.empty()) options.shard_size(parse_bytes(args.shard_size));
  for (const auto& text : args.renames) options.renames().push_back(parse_pair(text));
  Checkpoint input(args.input, args.key);
  if (args.keep_prefix) input.restore_prefix();
  print_notes("convert", input);

  const std::filesystem::path output = args.output;
  const bool folder = args.output.ends_with('/') || is_folder(output);
  Converted result;
  const auto convert_all = [&] {
    Progress progress("tpgm convert", bytes_of(input));
    result = convert_checkpoint(input, folder ? output / "model.safetensors" : output, options,
                                progress.callback());
  };
  folder ? with_folder(output, convert_all) : convert_all();
  if (!result.overflowed.empty()) {
    say(fmt::format("tpgm convert: in {} tensors values are beyond the range of {}, first in '{}'\n",
                    result.overflowed.size(), args.dtype, printable(result.overflowed.front())));
  }
  for (const auto& file : result.files) fmt::print("{}\n", file.string());
  fmt::print("{} tensors, {}, from {}\n", result.tensors, bytes_text(result.bytes), input.format());
  return 0;
}

}  // namespace

Run configure_convert(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  app.add_option("IN", args->input, "The checkpoint: a file or a folder, of any format")->required();
  app.add_option("-o,--output", args->output,
                 "What to write: a .safetensors file, or a folder for model.safetensors")
      ->required();
  app.add_option(
         "--dtype", args->dtype,
         "Type for floating-point tensors: fp64, fp32, fp16, bf16, fp8_e4m3, fp8_e5m2; default: as they are")
      ->check(parses([](const std::string& text) { parse_dtype(text); }));
  app.add_option("--rename", args->renames,
                 "FROM=TO: rename tensors; a * on the right is what the * on the "
                 "left stood for; may be "
                 "repeated, in order")
      ->allow_extra_args(false)
      ->check(parses(parse_pair));
  app.add_option("--only", args->only,
                 "GLOB: tensors to keep, before renaming; may be repeated; default: all")
      ->allow_extra_args(false);
  app.add_option("--exclude", args->exclude, "GLOB: tensors to leave out, before renaming; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--key", args->key,
                 "Entry of a nested checkpoint to take, such as state_dict_ema; default: the usual ones");
  app.add_option("--shard-size", args->shard_size,
                 "Write files of at most this size (5GB) and an index; default: one file")
      ->check(parses(parse_bytes));
  app.add_flag("--keep-prefix", args->keep_prefix,
               "Keep 'module.', '_orig_mod.' or 'backbone.' before all names");
  return [args] { return convert(*args); };
}

}  // namespace tpgm::tools
