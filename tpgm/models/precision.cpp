// Autocast and channels-last.
#include "tpgm/models/precision.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/nn/module.h>

namespace tpgm {
namespace {

void set(const AutocastState& state) {
  at::autocast::set_autocast_enabled(state.device, state.enabled);
  at::autocast::set_autocast_dtype(state.device, state.dtype);
  at::autocast::set_autocast_cache_enabled(state.cached);
}

}  // namespace

AutocastState AutocastState::current(c10::DeviceType device) {
  return {device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device),
          at::autocast::is_autocast_cache_enabled()};
}

AutocastState AutocastState::without_cache() const { return {device, enabled, dtype, false}; }

Autocast::Autocast(c10::DeviceType device, c10::ScalarType dtype)
    : Autocast(AutocastState{device, true, dtype}) {}

Autocast::Autocast(const AutocastState& state) : before_(AutocastState::current(state.device)) {
  at::autocast::increment_nesting();
  set(state);
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  set(before_);
}

void to_channels_last(torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  }
}

}  // namespace tpgm
