// `tpgm wise`: interpolates two checkpoints, with one ratio or with several.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <set>
#include <stdexcept>

#include "tools/command.h"
#include "tools/progress.h"
#include "tools/text.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/shell.h"
#include "tpgm/checkpoints/merge.h"
#include "tpgm/checkpoints/provenance.h"
#include "tpgm/weights/align.h"

namespace tpgm::tools {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxRatios = 200;  // each is an open file

// Spaces after a comma are allowed: "0.1, 0.5".
double parse_ratio(const std::string& text) {
  const auto value =
      parse_number<double>(std::string_view(text).substr(std::min(text.find_first_not_of(' '), text.size())));
  if (!value || !std::isfinite(*value))
    throw std::invalid_argument(fmt::format("'{}' is not a number", text));
  return *value;
}

// "0.5", "0.1,0.5" or "first:last:step".
std::vector<double> parse_ratios(const std::string& text) {
  std::vector<double> ratios;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t first = part.find(':'),
                 second = first == std::string::npos ? first : part.find(':', first + 1);
    if (first == std::string::npos) {
      ratios.push_back(parse_ratio(part));
      continue;
    }
    if (second == std::string::npos)
      throw std::invalid_argument(fmt::format("'{}' is not a range; write it like 0.1:0.9:0.1", part));
    const double from = parse_ratio(part.substr(0, first)),
                 to = parse_ratio(part.substr(first + 1, second - first - 1)),
                 step = parse_ratio(part.substr(second + 1));
    if (step <= 0 || to < from) {
      throw std::invalid_argument(
          fmt::format("'{}' is an empty range; write FIRST:LAST:STEP like 0.1:0.9:0.1", part));
    }
    if ((to - from) / step > kMaxRatios) {
      throw std::invalid_argument(fmt::format("'{}' has more than {} ratios", part, kMaxRatios));
    }
    for (size_t i = 0; from + static_cast<double>(i) * step <= to + 1e-9 * step; ++i) {
      // 0.3, not 0.30000000000000004, so that it equals a ratio that is given by itself.
      ratios.push_back(std::stod(fmt::format("{:.10g}", from + static_cast<double>(i) * step)));
    }
  }
  if (ratios.size() > kMaxRatios) {
    throw std::invalid_argument(
        fmt::format("{} ratios are too many; the most is {}", ratios.size(), kMaxRatios));
  }
  std::set<double> seen;
  for (const double ratio : ratios) {
    if (!seen.insert(ratio).second)
      throw std::invalid_argument(fmt::format("the ratio {} occurs twice", ratio));
  }
  return ratios;
}

std::pair<std::string, double> parse_filter(const std::string& text) {
  if (text.find('=') == std::string::npos) {
    throw std::invalid_argument(fmt::format("'{}' has no ratio; write it like 'visual.*=0.3'", text));
  }
  const auto [glob, ratio] = parse_pair(text);
  return {glob, parse_ratio(ratio)};
}

struct WiseArguments {
  std::string pretrained, finetuned, output, ratio = "0.5", shard_size;
  std::vector<std::string> filters, exclude;
  bool keep_prefix = false;
};

// The command that makes the output of a ratio, for its metadata.
std::string command_text(const Checkpoint& pretrained, const Checkpoint& finetuned,
                         const MergeOptions& options, double ratio) {
  std::string text = fmt::format("tpgm wise {} {} --ratio {}", shell_word(name_of(pretrained)),
                                 shell_word(name_of(finetuned)), ratio);
  for (const auto& [glob, value] : options.filters())
    text += " --filter " + shell_quoted(fmt::format("{}={}", glob, value));
  for (const auto& glob : options.exclude()) text += " --exclude " + shell_quoted(glob);
  if (options.shard_size() > 0) text += fmt::format(" --shard-size {}", options.shard_size());
  return text;
}

int wise(const WiseArguments& args) {
  MergeOptions options;
  options.ratios(parse_ratios(args.ratio));
  for (const auto& text : args.filters) {
    options.filters().push_back(parse_filter(text));
  }
  if (!args.shard_size.empty()) options.shard_size(parse_bytes(args.shard_size));
  Checkpoint pretrained(args.pretrained), finetuned(args.finetuned);
  if (args.keep_prefix) {
    pretrained.restore_prefix();
    finetuned.restore_prefix();
  }
  print_notes("wise", pretrained);
  print_notes("wise", finetuned);
  const auto alignment = align_layouts(pretrained, finetuned);
  for (const auto& note : alignment.notes) say_line("wise", note);
  auto exclude = args.exclude;  // a part that only FT has is copied, and one that only PRE has dropped
  exclude.insert(exclude.end(), alignment.own_parts.begin(), alignment.own_parts.end());
  options.exclude(exclude);

  const fs::path output = args.output;
  const bool sweep = args.ratio.find_first_of(":,") != std::string::npos;
  const bool beside = sweep && output.extension() == ".safetensors" && !is_folder(output);
  const bool folder = !beside && (sweep || args.output.ends_with('/') || is_folder(output));
  std::vector<fs::path> outputs;
  for (const double ratio : options.ratios()) {
    const fs::path stem = fs::path(output).replace_extension();
    outputs.push_back(beside   ? fs::path(fmt::format("{}-ratio={}.safetensors", stem.string(), ratio))
                      : sweep  ? output / fmt::format("wise-{}.safetensors", ratio)
                      : folder ? output / "model.safetensors"
                               : output);
  }
  options.command([&](double ratio) { return command_text(pretrained, finetuned, options, ratio); });
  std::vector<std::vector<fs::path>> files;
  const auto merge = [&] {
    Progress progress("tpgm wise", bytes_of(finetuned));
    files = merge_checkpoints(pretrained, finetuned, outputs, options, progress.callback());
  };
  folder ? with_folder(output, merge) : merge();
  for (size_t k = 0; k < files.size(); ++k) {
    for (const auto& file : files[k]) fmt::print("{}\n", file.string());
    fmt::print("ratio {}, {} tensors, {}\n", options.ratios()[k], finetuned.names().size(),
               bytes_text(bytes_of(finetuned)));
  }
  return 0;
}

}  // namespace

Run configure_wise(CLI::App& app) {
  auto args = std::make_shared<WiseArguments>();
  app.add_option("PRE", args->pretrained, "Pre-trained checkpoint (ratio 0): a file or folder")->required();
  app.add_option("FT", args->finetuned, "Fine-tuned checkpoint (ratio 1)")->required();
  app.add_option("-o,--output", args->output,
                 "Output: a .safetensors file; for several ratios, a folder (OUT/wise-0.1.safetensors), or a "
                 ".safetensors file (OUT-ratio=0.1.safetensors)")
      ->required();
  app.add_option(
         "--ratio", args->ratio,
         "Interpolation ratio from PRE (0) to FT (1): one, several (0.1,0.5) or a sweep (0.1:0.9:0.1)")
      ->type_name("FLOAT,...")
      ->check(parses(parse_ratios));
  app.add_option("--filter", args->filters,
                 "GLOB=RATIO: another ratio for matching tensors; may be repeated, the last match applies")
      ->allow_extra_args(false)
      ->check(parses(parse_filter));
  app.add_option("--exclude", args->exclude,
                 "GLOB: tensors to copy from FT unchanged (or to drop, if FT has none); may be repeated")
      ->allow_extra_args(false);
  app.add_option("--shard-size", args->shard_size,
                 "Write shards of at most this size (5GB) and an index; default: one file")
      ->check(parses(parse_bytes));
  app.add_flag("--keep-prefix", args->keep_prefix,
               "Keep a prefix 'module.', '_orig_mod.' or 'backbone.' that all names share");
  return [args] { return wise(*args); };
}

}  // namespace tpgm::tools
