// `tpgm data shards`: folders or lists into tars.
#include <fmt/format.h>

#include <memory>

#include "tools/data.h"
#include "tools/progress.h"
#include "tools/text.h"
#include "tpgm/data/shard_writer.h"

namespace tpgm::tools {
namespace {

struct Arguments {
  std::string where, output, shard_size = "512MiB";
  std::vector<std::string> domains;
};

int shards(const Arguments& args) {
  const int64_t shard_bytes = parse_bytes(args.shard_size);
  if (shard_bytes < 1) throw UsageError("--shard-size must be at least 1 byte");
  const Dataset data(args.where);
  print_notes("data shards", data);
  const auto parts = parts_of(data, args.domains, Role::kTrain);
  size_t pictures = 0;
  for (const auto& part : parts) pictures += static_cast<size_t>(part->size());
  {
    Progress progress("tpgm data shards", pictures, pictures_text);
    write_shards(data, parts, args.output, ShardOptions().shard_bytes(shard_bytes), progress.callback());
  }
  fmt::print("{}\n{} of {} classes in {} parts\n", args.output, pictures_text(pictures),
             data.classes().size(), parts.size());
  return 0;
}

}  // namespace

Run configure_data_shards(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  app.add_option("data_dir", args->where, "A data set, as 'tpgm data check' takes it")->required();
  app.add_option("-o,--output", args->output, "The folder to make: PART-000000.tar and on, and classes.txt")
      ->required();
  app.add_option("--domains", args->domains, "Only these parts: real,sketch or real/train; default: all")
      ->delimiter(',');
  app.add_option("--shard-size", args->shard_size, "Begin a new tar at this size: 1GB, 512MiB")
      ->check(parses(parse_bytes));
  return [args] { return shards(*args); };
}

}  // namespace tpgm::tools
