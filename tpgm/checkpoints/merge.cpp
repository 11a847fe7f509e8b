// Interpolation from file to file.
#include "tpgm/checkpoints/merge.h"

#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>

#include "tpgm/base/call.h"
#include "tpgm/base/names.h"
#include "tpgm/checkpoints/arithmetic.h"
#include "tpgm/checkpoints/provenance.h"
#include "tpgm/core/dtype.h"
#include "tpgm/io/safetensors_writer.h"
#include "tpgm/kernels/projection.h"

namespace tpgm {
namespace {

struct Job {
  std::string name;
  std::optional<double> ratio;  // of the filter that matches
  bool copied;                  // copy it from the fine-tuned checkpoint
};

std::vector<Job> plan_jobs(const Checkpoint& pretrained, const Checkpoint& finetuned,
                           const MergeOptions& options) {
  std::vector<Job> jobs;
  for (const auto& name : finetuned.names()) {
    Job job{name, std::nullopt,
            matches_any(options.exclude(), name) || !is_number(finetuned.entry(name).dtype)};
    for (const auto& [glob, ratio] : options.filters()) {
      if (matches(glob, name)) job.ratio = ratio;
    }
    jobs.push_back(std::move(job));
  }
  check_same_tensors(pretrained, finetuned, options.exclude());
  return jobs;
}

}  // namespace

std::vector<std::vector<std::filesystem::path>> merge_checkpoints(
    Checkpoint pretrained, Checkpoint finetuned, const std::vector<std::filesystem::path>& outputs,
    const MergeOptions& options, const Progress& progress) try {
  const auto& ratios = options.ratios();
  TORCH_CHECK(!ratios.empty() && outputs.size() == ratios.size(), ratios.size(), " ratios and ",
              outputs.size(), " outputs; give one output for each ratio");
  TORCH_CHECK(std::set<std::filesystem::path>(outputs.begin(), outputs.end()).size() == outputs.size(),
              "two ratios have the same output; give each its own");
  std::vector<double> all = ratios;
  for (const auto& filter : options.filters()) all.push_back(filter.second);
  for (const double ratio : all) {
    TORCH_CHECK(std::isfinite(ratio), "a ratio must be a finite number, not ", ratio);
  }
  align_names(pretrained, finetuned);
  std::vector<std::string> globs;
  for (const auto& filter : options.filters()) globs.push_back(filter.first);
  std::vector<std::string> names = finetuned.names();
  check_globs("`filter`", globs, names);
  names.insert(names.end(), pretrained.names().begin(), pretrained.names().end());
  check_globs("`exclude`", options.exclude(), names);
  const auto jobs = plan_jobs(pretrained, finetuned, options);

  Provenance provenance({&pretrained, &finetuned});
  const auto metadata = [&](size_t k) {
    Metadata result = provenance.metadata();
    if (options.command()) keys::kCommand.set(result, options.command()(ratios[k]));
    keys::kRatio.set(result, ratios[k]);
    return result;
  };
  std::vector<TensorSpec> specs;
  std::vector<TensorEntry> entries;
  for (const auto& job : jobs) {
    entries.push_back(finetuned.entry(job.name));
    specs.push_back({job.name, entries.back().dtype, entries.back().shape});
  }
  std::vector<std::unique_ptr<SafetensorsWriter>> writers;
  for (size_t k = 0; k < outputs.size(); ++k) {
    writers.push_back(
        std::make_unique<SafetensorsWriter>(outputs[k], specs, metadata(k), options.shard_size()));
    check_output(outputs[k], writers.back()->files(), {&pretrained, &finetuned});
  }
  provenance.start();

  const auto chunks = chunks_of(entries);
  for_each_chunk(chunks.size(), [&](size_t i) {
    const Chunk& chunk = chunks[i];
    const Job& job = jobs[chunk.tensor];
    const auto dtype = entries[chunk.tensor].dtype;
    const size_t element = c10::elementSize(dtype);
    const at::Tensor theta = finetuned.slice(job.name, chunk.begin, chunk.count);
    const auto write = [&](size_t k, const at::Tensor& vector) {
      writers[k]->write(chunk.tensor, static_cast<size_t>(chunk.begin) * element, vector.const_data_ptr(),
                        static_cast<size_t>(chunk.count) * element);
    };
    if (job.copied) {
      for (size_t k = 0; k < writers.size(); ++k) write(k, theta);
    } else {
      const at::Tensor anchor = pretrained.slice(job.name, chunk.begin, chunk.count);
      const bool complex = theta.is_complex();
      const auto type = working_type(anchor.scalar_type(), dtype);
      const at::Tensor from = working_vector(anchor, type, complex),
                       to = working_vector(theta, type, complex);
      at::Tensor blend = at::empty_like(to);
      for (size_t k = 0; k < writers.size(); ++k) {
        const double ratio = job.ratio.value_or(ratios[k]);
        // Exact copies, also where the other checkpoint is not finite.
        if (ratio == 0 || ratio == 1) {
          write(k, ratio == 0 ? anchor.to(dtype) : theta);
          continue;
        }
        kernels::interpolate_vector(to.const_data_ptr(), from.const_data_ptr(), blend.mutable_data_ptr(),
                                    ratio, dtype_of(type), to.numel());
        const auto pairs = type == at::kDouble ? at::kComplexDouble : at::kComplexFloat;
        write(k, (complex ? blend.view(pairs) : blend).to(dtype));
      }
    }
    if (progress) progress(static_cast<size_t>(chunk.count) * element);
  });

  provenance.wait();
  std::vector<std::vector<std::filesystem::path>> files;
  for (size_t k = 0; k < writers.size(); ++k) {
    writers[k]->set_metadata(metadata(k));
    writers[k]->prepare();
    files.push_back(writers[k]->files());
  }
  for (auto& writer : writers) writer->commit();
  return files;
} catch (...) {
  rethrow_from("merge_checkpoints");
}

}  // namespace tpgm
