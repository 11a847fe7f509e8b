// `tpgm project`: a fine-tuned checkpoint projected towards its pre-trained one, by radii learned on held-out
// data. Its twenty options and the command that it records in each output make it longer than other commands.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "tools/data.h"
#include "tools/progress.h"
#include "tools/setting_flags.h"
#include "tools/text.h"
#include "tpgm/base/shell.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/checkpoints/provenance.h"
#include "tpgm/core/device.h"
#include "tpgm/io/file.h"
#include "tpgm/study/project.h"

namespace tpgm::tools {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostOutputs = 200;  // each is an open file

struct ProjectArguments {
  std::string anchor, checkpoint, head, where, part, output, mu = "0";
  std::string norm = "l2", init = "half", scale = "absolute";
  int64_t radius_steps = TpgmOptions().every(kEnd).radius_steps_or_default(), radius_batch_size = 64;
  double radius_lr = 1e-2, tv = 0;
  std::vector<std::string> exclude;
  SettingFlags flags;
  bool json = false;
};

std::vector<double> parse_mu(const std::string& text) {
  std::vector<double> values;
  try {
    from_text("[project] --mu", text, values);
  } catch (const c10::Error&) {
    values.clear();
  }
  const std::set<double> different(values.begin(), values.end());
  const bool good =
      !values.empty() && values.size() <= kMostOutputs && different.size() == values.size() &&
      std::all_of(values.begin(), values.end(), [](double mu) { return mu >= 0 && mu < 1e300; });
  if (!good) {
    throw std::invalid_argument(
        fmt::format("'{}': expected different numbers of 0 or more, separated by commas: 4e-3,1e-3,0", text));
  }
  return values;
}

// The command that makes a file, without folders and without options of the machine.
std::string command_text(const ProjectArguments& args, const Checkpoint& anchor, const Checkpoint& finetuned,
                         double mu) {
  std::string text = fmt::format(
      "tpgm project --anchor {} --checkpoint {} --radius-data {} --mu {} --norm {} --radius-steps {} "
      "--radius-lr {} --radius-batch-size {} --init {} --scale {} --tv {}",
      shell_word(name_of(anchor)), shell_word(name_of(finetuned)),
      shell_quoted(printable(fs::path(args.where).filename().string(), 255)), mu, args.norm,
      args.radius_steps, args.radius_lr, args.radius_batch_size, args.init, args.scale, args.tv);
  if (!args.part.empty()) text += " --part " + shell_quoted(args.part);
  for (const auto& glob : args.exclude) text += " --exclude " + shell_quoted(glob);
  if (!args.head.empty()) text += " --head " + shell_quoted(fs::path(args.head).filename().string());
  for (const auto& [key, value] : without(args.flags.given(), Trait::kMachine)) {
    const auto shown = is_path(key, value) ? fs::path(value).filename().string() : value;
    text += " " + shell_word(fmt::format("--{}={}", key, shown));
  }
  return text;
}

void print(const ProjectArguments& args, const std::vector<Projected>& results,
           const std::vector<fs::path>& files, const Projector& projector) {
  const auto& part = projector.part();
  const size_t skipped = projector.skipped().size();
  if (args.json) {
    nlohmann::ordered_json json{{"radius_data", printable(part->title())},
                                {"pictures", part->size()},
                                {"skipped", skipped},
                                {"radius_steps", args.radius_steps},
                                {"outputs", nlohmann::ordered_json::array()}};
    for (size_t k = 0; k < results.size(); ++k) {
      json["outputs"].push_back(to_json(results[k], files[k]));
    }
    fmt::print("{}\n", json.dump(2));
    return;
  }
  fmt::print("{}\n", to_text(to_table(results)));
  for (size_t k = 0; k < results.size(); ++k) {
    fmt::print("{}\n", files[k].string());
    if (args.radius_steps > 0)
      fmt::print("mu {}: radius loss from {:.4f} to {:.4f}, on {} of {}\n", results[k].mu,
                 results[k].first_loss, results[k].last_loss, images_text(static_cast<size_t>(part->size())),
                 printable(part->title().empty() ? args.where : part->title(), kMaxPath));
  }
  if (skipped > 0) fmt::print("{} skipped\n", images_text(skipped));
  fmt::print("'tpgm convert --to' writes {} with the names of another library\n",
             files.size() == 1 ? "it" : "them");
}

ProjectOptions options_of(const ProjectArguments& args) {
  ProjectOptions options;
  options.anchor = args.anchor;
  options.checkpoint = args.checkpoint;
  options.head = args.head;
  options.radius_data = args.where;
  options.part = args.part;
  options.tpgm.norm(parsed<Norm>(args.norm))
      .radius_steps(args.radius_steps)
      .radius_lr(args.radius_lr)
      .init(parsed<RadiusInit>(args.init))
      .scale(parsed<RadiusScale>(args.scale))
      .tv(args.tv)
      .exclude(args.exclude);
  options.mu = parse_mu(args.mu);
  options.radius_batch_size = args.radius_batch_size;
  options.options = make_options(args.flags.given());
  return options;
}

int project(const ProjectArguments& args) {
  const auto options = options_of(args);
  const auto device = find_device(options.options.device);
  const auto files = projected_files(args.output, options.mu);
  Projector projector(options, device, [](const std::string& text) { say_line("project", text); });
  std::vector<std::string> commands;
  const Checkpoint anchor(args.anchor), finetuned(args.checkpoint);
  for (const double mu : options.mu) commands.push_back(command_text(args, anchor, finetuned, mu));

  std::vector<Projected> results;
  const auto work = [&] {
    Progress line;
    const auto begin = std::chrono::steady_clock::now();
    results = projector.run(files, commands, [&](const ProjectProgress& at) {
      if (!line.due()) return;
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      const double left = seconds / static_cast<double>(at.step) * static_cast<double>(at.steps - at.step);
      line.show(fmt::format("tpgm project: step {} of {}, mu {}, loss {:.4f}, {} left", at.step, at.steps,
                            at.mu, at.loss.item<double>(), duration_text(left)));
    });
  };
  args.output.ends_with('/') ? with_folder(args.output, work) : work();
  for (const auto& bad : projector.skipped())
    say_line("project", fmt::format("skipped '{}': {}", printable(bad.place, kMaxPath),
                                    printable(bad.reason, kMaxPath)));
  print(args, results, files, projector);
  return 0;
}

}  // namespace

Run configure_project(CLI::App& app) {
  auto args = std::make_shared<ProjectArguments>();
  auto& flags = args->flags;
  app.add_option("--anchor", args->anchor, "Pre-trained checkpoint: a file, folder or run of any layout")
      ->required();
  app.add_option("--checkpoint", args->checkpoint, "Fine-tuned checkpoint, with its head")->required();
  app.add_option(
         "--radius-data", args->where,
         "Held-out data for learning radii, as for 'tpgm data check': neither checkpoint was trained on it")
      ->required();
  app.add_option("-o,--output", args->output,
                 "Output: a .safetensors file; with several values of --mu, one file each: "
                 "OUT-mu=0.001.safetensors; {mu} in the name stands for the value")
      ->required();
  app.add_option(
      "--part", args->part,
      "Part of --radius-data: a domain, or DOMAIN/SPLIT; default: the only part, or the one named radius or "
      "train");
  app.add_option(
         "--mu", args->mu,
         "TPGM-C: weight of the squared radii in the radius loss; several (4e-3,1e-3,0) give one output each")
      ->check(parses(parse_mu));
  app.add_option("--norm", args->norm, "Norm of the distance from the anchor: l2, mars or mars-max")
      ->check(parses_as<Norm>());
  app.add_option("--radius-steps", args->radius_steps, "Number of radius steps")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_option("--radius-lr", args->radius_lr, "Learning rate of the radii (Adam)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--radius-batch-size", args->radius_batch_size, "Batch size of a radius step")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--init", args->init, "Initial radius: half of the distance, or eps (1e-8)")
      ->check(parses_as<RadiusInit>());
  app.add_option("--scale", args->scale,
                 "Learn the radius itself (absolute), or its ratio to the distance (relative)")
      ->check(parses_as<RadiusScale>());
  app.add_option("--tv", args->tv, "Weight of the total variation of the ratios within a block")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--exclude", args->exclude, "GLOB: parameters to keep as fine-tuned; may be repeated")
      ->allow_extra_args(false);
  flags.add(app, "--model");
  app.add_option("--head", args->head, "Head for checkpoints that have none: a file of 'tpgm zeroshot'");
  flags.add(
      app, "--class-list",
      "Classes in the order of the head: a file with one per line, or a folder of class folders; default: "
      "the checkpoint's own, or the data's");
  flags.add(app, "--seed", "Random seed for the order of the radius data");
  flags.add_images(app);
  flags.add(app, "--cache");
  flags.add(app, "--device");
  flags.add(app, "--amp", "Use AMP: compute in bf16 where that is safe; weights stay fp32");
  app.add_flag("--json", args->json, "Print JSON, with the ratio of every tensor");
  return [args] { return project(*args); };
}

}  // namespace tpgm::tools
