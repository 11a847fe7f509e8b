// `tpgm data shards`: folders or lists into tars.
#include <fmt/format.h>

#include <memory>

#include "tools/data.h"
#include "tools/progress.h"
#include "tools/text.h"
#include "tpgm/data/sources/shard_writer.h"

namespace tpgm::tools {
namespace {

struct ShardsArguments {
  std::string where, output, shard_size = "512MiB";
  int64_t max_pixels = kMaxPixels;
  std::vector<std::string> domains;
};

int shards(const ShardsArguments& args) {
  const int64_t shard_bytes = parse_bytes(args.shard_size);
  if (shard_bytes < 1) throw UsageError("--shard-size must be at least 1 byte");
  const Dataset data(args.where);
  print_notes("data shards", data);
  const auto parts = parts_of(data, args.domains);
  const size_t images = count_images(parts);
  {
    Progress progress("tpgm data shards", images, images_text);
    write_shards(data, parts, args.output,
                 ShardOptions().shard_bytes(shard_bytes).max_pixels(args.max_pixels), progress.callback());
  }
  fmt::print("{}\n{} of {} in {}\n", args.output, images_text(images),
             counted(static_cast<int64_t>(data.classes().size()), "class"),
             counted(static_cast<int64_t>(parts.size()), "part"));
  return 0;
}

}  // namespace

Run configure_data_shards(CLI::App& app) {
  auto args = std::make_shared<ShardsArguments>();
  app.add_option("DATA", args->where, "Data set, as for 'tpgm data check'")->required();
  app.add_option("-o,--output", args->output, "Output folder: PART-000000.tar …, and classes.txt")
      ->required();
  app.add_option("--domains", args->domains,
                 "Domains with all their splits, or single splits of them (real,sketch/test); default: all")
      ->delimiter(',');
  app.add_option("--shard-size", args->shard_size, "Size at which a new tar begins: 1GB, 512MiB")
      ->check(parses(parse_bytes));
  app.add_option("--max-pixels", args->max_pixels, "Images with more pixels than this are an error")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  return [args] { return shards(*args); };
}

}  // namespace tpgm::tools
