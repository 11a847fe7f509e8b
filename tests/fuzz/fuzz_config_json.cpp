// Config files of other libraries: the same text is read as a file of each.
#include "tests/fuzz/support.h"
#include "tpgm/weights/config_json.h"

using namespace tpgm;

FUZZ(bytes) {
  for (const auto read :
       {read_huggingface_config, read_open_clip_resnet_config, read_open_clip_vit_config, read_timm_config}) {
    fuzz::parse_or_refuse(bytes.size(), [&] {
      ModelConfig config;
      if (!read(bytes, config)) return;
      for (const auto& size : {config.image_size, config.channels, config.patch, config.width, config.depth,
                               config.mlp, config.text_width, config.text_depth, config.text_heads,
                               config.text_mlp, config.vocab, config.context})
        fuzz::demand(!size || (*size >= 1 && *size < 1 << 24), "a size is positive and sane");
      fuzz::demand(config.heads.value_or(0) >= 0, "a number of heads is not negative");
      fuzz::demand(config.end_of_text.value_or(-1) >= -1, "a token is not negative");
      fuzz::demand(!config.eps || (*config.eps > 0 && *config.eps < 1), "eps is small and positive");
    });
  }
}
