// Makes JPEGs with the statistics of photographs, and loads them with tpgm and the rival in turns. The files,
// the turns and the memory are one experiment, which is why this file is long.
#include "benchmarks/loader.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "benchmarks/memory.h"
#include "benchmarks/python.h"
#include "benchmarks/scratch.h"
#include "benchmarks/timing.h"
#include "tpgm/base/child_process.h"
#include "tpgm/data/dataset.h"
#include "tpgm/data/formats/encode.h"
#include "tpgm/data/loader.h"
#include "tpgm/data/sources/tar_writer.h"

namespace tpgm::benchmarks {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kWidth = 500, kHeight = 375;
constexpr int64_t kTurnBatches = 2, kListLines = 1'000'000;
constexpr size_t kClasses = 10, kImagesPerShard = 250;

// --- files -------------------------------------------------------------------------------------------------

// Octaves of equal strength, as photographs have them, from `coarsest` to `finest` cells across the image.
at::Tensor noise(int64_t channels, int64_t coarsest, int64_t finest, at::Generator& random) {
  const auto stretched = [](const at::Tensor& grid, int64_t height, int64_t width) {
    return at::upsample_bilinear2d(grid, {height, width}, /*align_corners=*/true);
  };
  at::Tensor sum;
  for (int64_t cells = coarsest; cells <= finest; cells *= 2) {
    const at::Tensor octave = at::randn({1, channels, cells * 3 / 4 + 1, cells + 1}, random);
    sum = sum.defined() ? stretched(sum, octave.size(2), octave.size(3)) + octave : octave;
  }
  return stretched(sum, kHeight, kWidth);
}

// Things in front of each other, small ones more often than large ones.
at::Tensor discs(Random& random) {
  at::Tensor encoded = at::zeros({1, 3, kHeight, kWidth});
  auto pixels = encoded.accessor<float, 4>();
  for (int disc = 0; disc < 60; ++disc) {
    const double x = random.uniform(0, kWidth), y = random.uniform(0, kHeight),
                 radius = 8 / std::sqrt(random.uniform(0.002, 1));
    const double gray = 45 * random.normal();
    const std::array<double, 3> color{gray + 12 * random.normal(), gray + 8 * random.normal(),
                                      gray + 12 * random.normal()};
    for (auto row = std::max<int64_t>(0, std::llround(y - radius)); row < kHeight && row < y + radius;
         ++row) {
      const double half =
          std::sqrt(std::max(0.0, radius * radius - std::pow(static_cast<double>(row) - y, 2)));
      const auto begin = std::max<int64_t>(0, std::llround(x - half)),
                 end = std::min<int64_t>(kWidth, std::llround(x + half));
      for (int64_t c = 0; c < 3; ++c) {
        for (auto column = begin; column < end; ++column)
          pixels[0][c][row][column] = static_cast<float>(color[c]);
      }
    }
  }
  return encoded;
}

Image make_image(int64_t index) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(index));
  Random random(0, 0, static_cast<uint64_t>(index));
  // Grass here, sky there: details are strong in some places, and in some images more than in others.
  const at::Tensor details = noise(1, 2, 8, generator).mul_(0.6).add_(random.uniform(-0.6, 0.6)).exp_();
  const at::Tensor pixels = discs(random)
                                .add_(noise(1, 2, 16, generator), 14)
                                .add_(noise(3, 2, 64, generator), 4)
                                .add_(noise(1, 32, 512, generator).mul_(details), 6)
                                .add_(118);
  const at::Tensor bytes = pixels.clamp(0, 255).to(at::kByte).permute({0, 2, 3, 1}).contiguous();
  Image image(kWidth, kHeight);
  std::copy_n(bytes.const_data_ptr<uint8_t>(), image.pixels.size(), image.pixels.begin());
  return image;
}

// The same images in class folders and in shards, and lists of them; removed with the object.
class Files {
 public:
  explicit Files(const LoaderBenchOptions& options) : folder_(options.folder) {
    fs::create_directories(shards());
    make_images(options);
  }

  fs::path images() const { return file("images"); }
  fs::path shards() const { return file("shards"); }
  fs::path file(const char* name) const { return folder_.path() / name; }
  double mean_kb() const { return bytes_ / 1e3 / static_cast<double>(names_.size()); }

  // Repeats the files until the list has so many lines.
  fs::path write_list(const char* name, int64_t lines) const {
    const fs::path path = file(name);
    std::ofstream stream(path);
    for (int64_t i = 0; i < lines; ++i) {
      const auto at = static_cast<size_t>(i) % names_.size();
      stream << "images/" << names_[at] << ' ' << label(at) << '\n';
    }
    TORCH_CHECK(stream.flush(), "[bench loader] cannot write '", path.string(), "'");
    return path;
  }

 private:
  size_t label(size_t i) const { return i * kClasses / images_; }

  void make_images(const LoaderBenchOptions& options) {
    images_ = static_cast<size_t>(options.images);
    for (size_t begin = 0; begin < images_; begin += kImagesPerShard) {
      const size_t end = std::min(begin + kImagesPerShard, images_);
      std::vector<std::string> encoded(end - begin);
      at::parallel_for(0, static_cast<int64_t>(encoded.size()), 1, [&](int64_t i, int64_t stop) {
        for (; i < stop; ++i) {
          encoded[i] = encode_jpeg(make_image(static_cast<int64_t>(begin) + i), options.quality);
        }
      });
      TarWriter shard(shards() / fmt::format("images-{:06}.tar", begin / kImagesPerShard));
      for (size_t i = begin; i < end; ++i) {
        const std::string& bytes = encoded[i - begin];
        write_image(i, bytes);
        shard.add(fmt::format("{:08}.jpg", i), bytes);
        shard.add(fmt::format("{:08}.cls", i), std::to_string(label(i)));
      }
      shard.commit();
    }
  }

  void write_image(size_t i, const std::string& bytes) {
    bytes_ += static_cast<double>(bytes.size());
    // Sorted by name they are in the order of the shards.
    names_.push_back(fmt::format("class_{:02}/image_{:08}.jpg", label(i), i));
    const fs::path path = images() / names_.back();
    fs::create_directories(path.parent_path());
    std::ofstream stream(path, std::ios::binary);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    TORCH_CHECK(stream.flush(), "[bench loader] cannot write '", path.string(), "'");
  }

  Scratch folder_;
  std::vector<std::string> names_;
  size_t images_ = 0;
  double bytes_ = 0;
};

Dataset::Part only_part(const fs::path& where) {
  const Dataset data(where.string());
  TORCH_CHECK(data.parts().size() == 1, "[bench loader] '", where.string(), "' has several parts");
  return data.parts().front();
}

// --- turns -------------------------------------------------------------------------------------------------

// Seconds per image.
struct Lap {
  double wall = 0, cpu = 0;
};

double seconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Lap measure(int64_t images, const std::function<void()>& work) {
  const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
  work();
  const auto count = static_cast<double>(images);
  return {(seconds(CLOCK_MONOTONIC) - wall) / count, (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) / count};
}

class Laps {
 public:
  void add(const Lap& lap) {
    wall_.push_back(lap.wall);
    cpu_.push_back(lap.cpu);
  }
  LoaderSpeed speed() const { return {1 / median(wall_), 1 / median(cpu_)}; }

 private:
  std::vector<double> wall_, cpu_;
};

void run_epoch(Loader& loader, int64_t epoch) {
  loader.start(epoch);
  while (loader.next()) {
  }
}

SampleSubset part_of(const Dataset::Part& samples, int64_t begin, int64_t end) {
  SampleSubset subset{samples, {}};
  for (int64_t i = begin; i < end; ++i) subset.indices.push_back(i);
  return subset;
}

Lap our_turn(const SampleSubset& subset, const View& view, int64_t workers, int64_t batch_size) {
  Loader loader(subset, view, LoaderOptions().batch_size(batch_size).workers(workers));
  run_epoch(loader, 0);  // allocates the memory for its batches
  return measure(subset.size(), [&] { run_epoch(loader, 1); });
}

// Python with the rival's script, which waits for its turns.
class LoaderRival {
 public:
  LoaderRival(const LoaderBenchOptions& options, const Files& files, const Dataset::Part& samples)
      : python_(options.python), script_(options.rival.string()) {
    const fs::path go = files.file("go"), settings = files.file("settings.json");
    Json paths = Json::array();
    for (int64_t i = 0; i < samples->size(); ++i) paths.push_back(samples->place(i));
    const LoaderOptions defaults;
    std::ofstream(settings) << Json{{"go", go.string()},
                                    {"files", paths},
                                    {"image_size", options.image_size},
                                    {"batch_size", options.batch_size},
                                    {"mean", defaults.mean()},
                                    {"std", defaults.std()}};
    TORCH_CHECK(::mkfifo(go.c_str(), 0600) == 0, "[bench loader] cannot make '", go.string(), "'");
    // Open in both directions, or opening would wait for the other side.
    go_ = ::open(go.c_str(), O_RDWR | O_CLOEXEC);
    process_.emplace(std::vector<std::string>{python_, script_, settings.string()});
    TORCH_CHECK(go_ >= 0, "[bench loader] cannot open '", go.string(), "'");
    const Json hello = answer();
    name = hello.at("name");
    torch = hello.at("torch");
  }
  ~LoaderRival() {
    if (go_ >= 0) ::close(go_);  // it ends then
  }
  LoaderRival(const LoaderRival&) = delete;
  LoaderRival& operator=(const LoaderRival&) = delete;

  Lap turn(const char* work, int64_t begin, int64_t end) {
    const std::string line = fmt::format("{} {} {}\n", work, begin, end);
    TORCH_CHECK(::write(go_, line.data(), line.size()) == static_cast<ssize_t>(line.size()),
                "[bench loader] the baseline does not listen");
    const Json lap = answer();
    const auto images = static_cast<double>(end - begin);
    return {lap.at("wall").get<double>() / images, lap.at("cpu").get<double>() / images};
  }

  std::string name, torch;

 private:
  Json answer() {
    std::string line;
    FILE* pipe = process_->output();
    for (int c = std::fgetc(pipe); c != EOF && c != '\n'; c = std::fgetc(pipe)) line += static_cast<char>(c);
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && !json.contains("error")) return json;
    const int status = process_->wait();
    TORCH_CHECK(!json.is_object(), "[bench loader] --python '", python_, "': ", json.value("error", ""));
    TORCH_CHECK(false, "[bench loader] --python: '", python_, "' could not run ", script_, " (",
                status_text(status), ")");
  }

  std::string python_, script_;
  int go_ = -1;
  std::optional<ChildProcess> process_;
};

struct Work {
  const char* name;
  View view;
  const char* rival;  // what it calls the same
  Laps ours, theirs;
};

std::vector<Work> works(int64_t size) {
  const auto training = TrainViewOptions().image_size(size);
  const auto evaluation = EvalViewOptions().image_size(size);
  return {{"training, fast", TrainViewOptions(training).decode(Decode::kFast), "train", {}, {}},
          {"training, exact", TrainViewOptions(training).decode(Decode::kExact), "train", {}, {}},
          {"evaluation, exact", EvalViewOptions(evaluation).decode(Decode::kExact), "eval", {}, {}},
          {"evaluation, exact, crop_pct 1",
           EvalViewOptions(evaluation).decode(Decode::kExact).crop_pct(1),
           "eval_whole",
           {},
           {}}};
}

int64_t turn_of(const LoaderBenchOptions& options) { return kTurnBatches * options.batch_size; }

void take_turns(const LoaderBenchOptions& options, const Files& files, const std::function<void()>& done,
                LoaderReport& report) {
  const auto images = only_part(files.images()), shards = only_part(files.shards());
  std::optional<LoaderRival> rival;
  if (!options.python.empty()) rival.emplace(options, files, images);

  std::vector<Work> all = works(options.image_size);
  Laps two_workers, from_shards;
  const int64_t batch = options.batch_size, turn = turn_of(options);
  for (int64_t pass = 0; pass < options.repeats; ++pass) {
    for (int64_t begin = 0; begin < options.images; begin += turn) {
      const int64_t end = std::min(begin + turn, options.images);
      const SampleSubset subset = part_of(images, begin, end);
      // Next to the turn they are compared with.
      const View& view = all.front().view;
      from_shards.add(our_turn(part_of(shards, begin, end), view, 1, batch));
      two_workers.add(our_turn(subset, view, 2, batch));
      for (auto& work : all) {
        work.ours.add(our_turn(subset, work.view, 1, batch));
        if (rival) work.theirs.add(rival->turn(work.rival, begin, end));
      }
      done();
      ++report.turns;
    }
  }
  for (const auto& work : all) {
    report.rows.push_back({work.name, work.ours.speed(), {}});
    if (rival) report.rows.back().rival = work.theirs.speed();
  }
  report.two_workers = two_workers.speed();
  report.shards = from_shards.speed();
  if (rival) {
    report.rival = rival->name;
    report.rival_torch = rival->torch;
  }
}

// --- memory ------------------------------------------------------------------------------------------------

// Waits until the workers have filled the queue.
void wait_idle() {
  constexpr double kLook = 0.02;
  for (double used = kLook; used > kLook / 4;) {
    const double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
    std::this_thread::sleep_for(std::chrono::duration<double>(kLook));
    used = seconds(CLOCK_PROCESS_CPUTIME_ID) - before;
  }
}

void measure_memory(const LoaderBenchOptions& options, const Files& files, LoaderReport& report) {
  const auto loader_options = LoaderOptions().batch_size(options.batch_size).workers(2).shuffle(true);
  report.queue_mib = 4.0 * 3 *
                     static_cast<double>(loader_options.queue() * options.batch_size * options.image_size *
                                         options.image_size) /
                     (1 << 20);
  const auto growth = [&](const Dataset::Part& samples) {
    return peak_growth_mib([&] {
      Loader loader(all_of(samples), TrainViewOptions().image_size(options.image_size), loader_options);
      loader.start(0);
      do {
        wait_idle();
      } while (loader.next());
    });
  };
  const auto once = only_part(files.write_list("once.txt", options.images)),
             twice = only_part(files.write_list("twice.txt", 2 * options.images));
  report.resident_mib = growth(once);
  report.resident_twice_mib = growth(twice);

  const fs::path list = files.write_list("million.txt", kListLines);
  Dataset::Part million;
  const double begin = seconds(CLOCK_MONOTONIC);
  report.list_mib = peak_growth_mib([&] { million = only_part(list); });
  report.list_s = seconds(CLOCK_MONOTONIC) - begin;
  TORCH_CHECK(million->size() == kListLines, "[bench loader] the list has ", million->size(), " files");
}

}  // namespace

LoaderReport measure_loader(const LoaderBenchOptions& options) {
  const int64_t turns = (options.images + turn_of(options) - 1) / turn_of(options);
  constexpr int64_t kBefore = 2;  // images, and memory
  const auto done = begin_progress(options.progress, kBefore + turns * options.repeats);
  const Files files(options);
  done();
  LoaderReport report;
  report.file_kb = files.mean_kb();
  measure_memory(options, files, report);
  done();
  take_turns(options, files, done, report);
  return report;
}

}  // namespace tpgm::benchmarks
