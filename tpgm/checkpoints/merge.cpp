// Interpolation from file to file.
#include "tpgm/checkpoints/merge.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "tpgm/checkpoints/provenance.h"
#include "tpgm/core/names.h"
#include "tpgm/io/safetensors_writer.h"
#include "tpgm/kernels/kernels.h"

namespace tpgm {
namespace {

constexpr const char* kCall = "merge_checkpoints";

bool is_number(at::ScalarType dtype) { return at::isFloatingType(dtype) || at::isComplexType(dtype); }

std::optional<kernels::DType> kernel_dtype(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return kernels::DType::kFloat64;
    case at::kFloat:
      return kernels::DType::kFloat32;
    case at::kHalf:
      return kernels::DType::kFloat16;
    case at::kBFloat16:
      return kernels::DType::kBFloat16;
    default:
      return std::nullopt;
  }
}

// A vector of `dtype` as one of a type the kernels know: complex numbers are pairs, 8-bit floats widen.
at::Tensor for_kernels(const at::Tensor& vector, at::ScalarType dtype) {
  if (at::isComplexType(dtype)) {
    const auto real = dtype == at::kComplexDouble ? at::kDouble : at::kFloat;
    return vector.to(dtype).view(real);
  }
  return vector.to(kernel_dtype(dtype) ? dtype : at::kFloat);
}

// into ← pretrained + ratio · (finetuned − pretrained), for vectors that for_kernels() made.
void interpolate(const at::Tensor& pretrained, const at::Tensor& finetuned, double ratio, at::Tensor& into) {
  const auto dtype = *kernel_dtype(finetuned.scalar_type());
  const auto plan = kernels::make_plan({{1, finetuned.numel(), dtype, dtype}});
  const kernels::Operands operands{finetuned.const_data_ptr(), pretrained.const_data_ptr(),
                                   into.mutable_data_ptr()};
  std::int32_t report = kernels::kAllFinite;
  kernels::Batch batch;
  batch.plan = &plan;
  batch.tensors = plan.tensors.data();
  batch.pieces = plan.pieces.data();
  batch.operands = &operands;
  batch.report = &report;
  batch.parallel_for = [](std::int64_t n, const auto& body) { body(0, n); };
  kernels::cpu().interpolate(batch, &ratio);
}

struct Job {
  std::string name;
  std::optional<double> ratio;  // a filter's
  bool copied;                  // from the fine-tuned checkpoint
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
  check_same_tensors("merge_checkpoints", pretrained, finetuned, options.exclude());
  return jobs;
}

std::string number(double value) { return fmt::format("{}", value); }

std::string command_text(const Checkpoint& pretrained, const Checkpoint& finetuned, double ratio,
                         const MergeOptions& options) {
  const auto name = [](const Checkpoint& checkpoint) {
    return checkpoint.path().lexically_normal().filename().string();
  };
  std::string text =
      fmt::format("tpgm wise {} {} --ratio {}", name(pretrained), name(finetuned), number(ratio));
  for (const auto& [glob, value] : options.filters())
    text += fmt::format(" --filter '{}={}'", glob, number(value));
  for (const auto& glob : options.exclude()) text += fmt::format(" --exclude '{}'", glob);
  return text;
}

}  // namespace

void merge_checkpoints(Checkpoint pretrained, Checkpoint finetuned,
                       const std::vector<std::filesystem::path>& outputs, const MergeOptions& options,
                       const Progress& progress) {
  const auto& ratios = options.ratios();
  TORCH_CHECK(!ratios.empty() && outputs.size() == ratios.size(), "[", kCall, "] ", ratios.size(),
              " ratios and ", outputs.size(), " outputs; give one output for each ratio");
  std::vector<double> all = ratios;
  for (const auto& filter : options.filters()) all.push_back(filter.second);
  for (const double ratio : all) {
    TORCH_CHECK(std::isfinite(ratio), "[", kCall, "] a ratio must be a number, and is ", ratio);
  }
  align_names(pretrained, finetuned);
  std::vector<std::string> globs;
  for (const auto& filter : options.filters()) globs.push_back(filter.first);
  std::vector<std::string> names = finetuned.names();
  check_globs(kCall, "filter", globs, names);
  names.insert(names.end(), pretrained.names().begin(), pretrained.names().end());
  check_globs(kCall, "exclude", options.exclude(), names);
  const auto jobs = plan_jobs(pretrained, finetuned, options);

  for (const auto& output : outputs) check_output(kCall, output, {&pretrained, &finetuned});
  Provenance provenance(command_text(pretrained, finetuned, ratios[0], options), {&pretrained, &finetuned});
  const auto metadata = [&](size_t k, Metadata common) {
    common["tpgm.command"] = command_text(pretrained, finetuned, ratios[k], options);
    common["tpgm.ratio"] = number(ratios[k]);
    return common;
  };
  std::vector<TensorSpec> specs;
  std::vector<TensorEntry> entries;
  for (const auto& job : jobs) {
    entries.push_back(finetuned.entry(job.name));
    specs.push_back({job.name, entries.back().dtype, entries.back().shape});
  }
  std::vector<std::unique_ptr<SafetensorsWriter>> writers;
  for (size_t k = 0; k < outputs.size(); ++k) {
    writers.push_back(std::make_unique<SafetensorsWriter>(
        outputs[k], specs, metadata(k, provenance.metadata()), options.shard_size(), kCall));
  }

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
      const at::Tensor from = for_kernels(anchor, dtype), to = for_kernels(theta, dtype);
      at::Tensor blend = at::empty_like(to);
      for (size_t k = 0; k < writers.size(); ++k) {
        const double ratio = job.ratio.value_or(ratios[k]);
        if (ratio == 0) {  // exactly the pre-trained weights, also where the fine-tuned ones are not finite
          write(k, anchor.to(dtype));
          continue;
        }
        if (k == 0 || !job.ratio) interpolate(from, to, ratio, blend);
        write(k, at::isComplexType(dtype) ? blend : blend.to(dtype));
      }
    }
    if (progress) progress(static_cast<size_t>(chunk.count) * element);
  });

  const Metadata& known = provenance.wait();
  for (size_t k = 0; k < writers.size(); ++k) writers[k]->set_metadata(metadata(k, known));
  for (auto& writer : writers) writer->commit();
}

}  // namespace tpgm
