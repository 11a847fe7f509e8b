// Other libraries' config.json: the same text as transformers' and as open_clip's.
#include "tests/fuzz/support.h"
#include "tpgm/models/families.h"
#include "tpgm/weights/config_json.h"

using namespace tpgm;

namespace {

struct Check {
  void operator()(const std::string& name, const char*, const std::optional<int64_t>& size) const {
    const int64_t least = name == "end_of_text" ? -1 : name == "heads" ? 0 : 1;
    fuzz::demand(!size || (*size >= least && *size < 1 << 24), "a size is positive and sane");
  }
  template <typename Other>
  void operator()(const std::string&, const char*, const Other&) const {}
};

}  // namespace

FUZZ(bytes) {
  for (const auto* name : {"config.json", "open_clip_config.json"}) {
    for (const Family& family : families()) {
      fuzz::parse_or_refuse(bytes.size(), [&] {
        const auto config = parse_config_json(bytes, name, family);
        if (!config) return;
        visit_sizes(family, Check(), *config);
        fuzz::demand(!config->eps || (*config->eps > 0 && *config->eps < 1), "eps is small and positive");
        fuzz::demand(!to_text(*config).empty(), "every config can be written");
      });
    }
  }
}
