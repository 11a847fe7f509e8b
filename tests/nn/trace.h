// Which operators a thread runs.
#pragma once

#include <ATen/record_function.h>

#include <memory>
#include <set>
#include <string>

namespace tpgm {

/// Operators that this thread ran while it lived.
class Trace {
 public:
  Trace() {
    seen().clear();
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                                           seen().insert(function.name());
                                           return std::unique_ptr<at::ObserverContext>();
                                         }).scopes({at::RecordScope::FUNCTION}));
  }
  ~Trace() { at::removeCallback(handle_); }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  static std::multiset<std::string>& seen() {
    static thread_local std::multiset<std::string> names;
    return names;
  }

 private:
  at::CallbackHandle handle_;
};

}  // namespace tpgm
