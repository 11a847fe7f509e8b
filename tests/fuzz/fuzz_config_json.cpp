// Config files of other libraries: the same text is read as a file of each.
#include "tests/fuzz/support.h"
#include "tpgm/weights/config_json.h"
#include "tpgm/weights/preprocessing.h"

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
  for (const auto read :
       {read_huggingface_preprocessing, read_open_clip_preprocessing, read_timm_preprocessing}) {
    fuzz::parse_or_refuse(bytes.size(), [&] {
      Preprocessing found;
      if (!read(bytes, found)) return;
      for (const auto* values : {&found.view.mean, &found.view.std})
        fuzz::demand(values->empty() || values->size() == 1 || values->size() == 3, "one number or three");
      for (const double mean : found.view.mean) fuzz::demand(mean >= 0 && mean <= 1, "a mean is in 0..1");
      for (const double std : found.view.std) fuzz::demand(std > 0 && std <= 1, "a std is positive");
      const double share = found.view.crop_pct.value_or(1);
      fuzz::demand(share >= 0.01 && share <= 8, "a crop is a share of the image");
      fuzz::demand(found.image_size.value_or(1) >= 1, "a size is positive");
    });
  }
}
