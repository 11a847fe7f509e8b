#include "benchmarks/io.h"

#include <ATen/Parallel.h>
#include <ATen/ops/rand.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "benchmarks/memory.h"
#include "benchmarks/python.h"
#include "benchmarks/scratch.h"
#include "benchmarks/timing.h"
#include "tpgm/base/child_process.h"
#include "tpgm/checkpoints/compare.h"
#include "tpgm/checkpoints/merge.h"
#include "tpgm/io/safetensors_writer.h"

namespace tpgm::benchmarks {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kPiece = size_t{1} << 20;

double seconds(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Shaped like the blocks of a large transformer.
int64_t make_checkpoint(const fs::path& path, double gigabytes) {
  std::vector<TensorSpec> specs;
  double bytes = 0;
  for (int block = 0; bytes < gigabytes * 1e9; ++block) {
    for (const auto& [name, rows, cols] :
         {std::tuple{"attn.in_proj.weight", 3072, 1024}, std::tuple{"attn.out_proj.weight", 1024, 1024},
          std::tuple{"mlp.c_fc.weight", 4096, 1024}, std::tuple{"mlp.c_proj.weight", 1024, 4096}}) {
      specs.push_back({fmt::format("blocks.{}.{}", block, name), at::kFloat, {rows, cols}});
      bytes += 4.0 * rows * cols;
    }
  }
  SafetensorsWriter writer(path, specs, {});
  for (size_t i = 0; i < specs.size(); ++i) {
    const at::Tensor tensor = at::rand(specs[i].shape);
    writer.write(i, 0, tensor.const_data_ptr(), tensor.nbytes());
  }
  writer.commit();
  return static_cast<int64_t>(specs.size());
}

// Reads a file into the page cache.
void warm(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::vector<char> buffer(kPiece);
  while (stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size()))) {
  }
}

// Allocates so many bytes and frees them. A virtual machine may have to get memory from its host first, which
// takes longer than anything that is measured here.
void take_pages(const fs::path& folder, double bytes) {
  if (bytes > 6e9) return;  // more than most machines have free
  std::ofstream stream(folder / "pages", std::ios::binary);
  const std::vector<char> piece(kPiece, 1);
  for (double done = 0; done < bytes; done += kPiece) stream.write(piece.data(), kPiece);
  stream.close();
  fs::remove(folder / "pages");
}

void check(bool ok, const char* what) {
  TORCH_CHECK(ok, "[bench io] cannot ", what, " a file of the benchmark");
}

// The lower bound: reads two files and writes one.
void copy(const fs::path& a, const fs::path& b, const fs::path& out, int threads, bool early) {
  const int from_a = ::open(a.c_str(), O_RDONLY), from_b = ::open(b.c_str(), O_RDONLY);
  const int to = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  check(from_a >= 0 && from_b >= 0 && to >= 0, "open");
  const size_t size = fs::file_size(a);
  std::atomic<size_t> next{0};
  std::atomic<bool> ok{true};
  const auto work = [&] {
    std::vector<char> x(kPiece), y(kPiece);
    for (size_t at = next.fetch_add(kPiece); at < size; at = next.fetch_add(kPiece)) {
      const size_t count = std::min(kPiece, size - at);
      const auto offset = static_cast<off_t>(at);
      const auto expected = static_cast<ssize_t>(count);
      if (::pread(from_a, x.data(), count, offset) != expected ||
          ::pread(from_b, y.data(), count, offset) != expected ||
          ::pwrite(to, y.data(), count, offset) != expected) {
        ok = false;
      }
      if (early) ::sync_file_range(to, offset, static_cast<off_t>(count), SYNC_FILE_RANGE_WRITE);
    }
  };
  std::vector<std::thread> pool;
  for (int i = 1; i < threads; ++i) pool.emplace_back(work);
  work();
  for (auto& thread : pool) thread.join();
  check(ok && ::fsync(to) == 0, "copy");
  ::close(from_a), ::close(from_b), ::close(to);
}

void run_python(const IoOptions& options, const fs::path& a, const fs::path& b, const fs::path& out,
                const std::function<void()>& done, IoReport& report) {
  std::vector<double> inner, process;
  for (int64_t i = 0; i < options.repeats; ++i) {
    fs::remove(out);
    ::sync();
    warm(a), warm(b);
    take_pages(out.parent_path(), 2.2e9 * report.gigabytes);
    std::string said;
    process.push_back(seconds([&] {
      ChildProcess rival({options.python, options.rival.string(), a.string(), b.string(), out.string()});
      said = rival.read_all();
      const int status = rival.wait();
      TORCH_CHECK(status == 0, "[bench io] --python: '", options.python, "' could not run ",
                  options.rival.string(), " (", status_text(status), ")");
    }));
    done();
    inner.push_back(std::stod(said));
  }
  report.python = median(inner);
  report.python_process = median(process);
}

}  // namespace

IoReport measure_io(const IoOptions& options) {
  const Scratch folder(options.folder);
  const fs::path a = folder.path() / "a.safetensors", b = folder.path() / "b.safetensors",
                 out = folder.path() / "out.safetensors";
  constexpr int64_t kMade = 2, kMeasured = 6;
  const auto done = begin_progress(options.progress, kMade + kMeasured * (options.repeats + 1) +
                                                         (options.python.empty() ? 0 : options.repeats));
  IoReport report;
  report.tensors = make_checkpoint(a, options.gigabytes);
  done();
  make_checkpoint(b, options.gigabytes);
  done();
  report.gigabytes = static_cast<double>(fs::file_size(a)) / 1e9;

  std::vector<double> copies, plain, merges, processes, compares, opens;
  for (int64_t i = -1; i < options.repeats; ++i) {
    const auto measure = [&](std::vector<double>& into, const std::function<void()>& work) {
      fs::remove(out);
      ::sync();
      warm(a), warm(b);
      take_pages(folder.path(), 1.1e9 * report.gigabytes);
      const double time = seconds(work);
      if (i >= 0) into.push_back(time);
      done();
    };
    measure(copies, [&] { copy(a, b, out, at::get_num_threads(), true); });
    measure(plain, [&] { copy(a, b, out, 1, false); });
    measure(merges, [&] {
      const double peak =
          peak_growth_mib([&] { merge_checkpoints(Checkpoint(a), Checkpoint(b), {out}, MergeOptions()); });
      report.merge_peak_mib = std::max(report.merge_peak_mib, peak);
    });
    measure(processes, [&] {
      const auto self = fs::read_symlink("/proc/self/exe");  // tpgm-torch, if it is `tpgm bench` that runs
      ChildProcess wise({self.string(), "wise", a.string(), b.string(), "-o", out.string()});
      wise.read_all();
      check(wise.wait() == 0, "run tpgm wise on");
    });
    measure(opens, [&] { Checkpoint{a}; });
    measure(compares, [&] { compare_checkpoints(Checkpoint(a), Checkpoint(b)); });
  }
  report.copy = median(copies);
  report.copy_plain = median(plain);
  report.merge = median(merges);
  report.merge_process = median(processes);
  report.open = median(opens);
  report.compare = median(compares);
  if (!options.python.empty()) run_python(options, a, b, out, done, report);
  return report;
}

}  // namespace tpgm::benchmarks
