#include "tpgm/weights/layouts.h"

#include "tpgm/models/families.h"
#include "tpgm/weights/config_json.h"
#include "tpgm/weights/preprocessing.h"

namespace tpgm {
namespace {

const Rules kOpenAiText{
    {"text.stem.token.weight", "token_embedding.weight"},
    {"text.stem.position", "positional_embedding"},
    {"text.blocks.*.norm1.*", "transformer.resblocks.*.ln_1.*"},
    {"text.blocks.*.attn.qkv.weight", "transformer.resblocks.*.attn.in_proj_weight"},
    {"text.blocks.*.attn.qkv.bias", "transformer.resblocks.*.attn.in_proj_bias"},
    {"text.blocks.*.attn.proj.*", "transformer.resblocks.*.attn.out_proj.*"},
    {"text.blocks.*.norm2.*", "transformer.resblocks.*.ln_2.*"},
    {"text.blocks.*.mlp.fc1.*", "transformer.resblocks.*.mlp.c_fc.*"},
    {"text.blocks.*.mlp.fc2.*", "transformer.resblocks.*.mlp.c_proj.*"},
    {"text.norm.*", "ln_final.*"},
    {"text.projection.weight", "text_projection", Form::kTransposed},
    {"logit_scale", "logit_scale"},
};

const Rules kOpenAiVit{
    {"visual.stem.patch.weight", "visual.conv1.weight"},
    {"visual.stem.class_token", "visual.class_embedding"},
    {"visual.stem.position", "visual.positional_embedding"},
    {"visual.stem.norm.*", "visual.ln_pre.*"},
    {"visual.blocks.*.norm1.*", "visual.transformer.resblocks.*.ln_1.*"},
    {"visual.blocks.*.attn.qkv.weight", "visual.transformer.resblocks.*.attn.in_proj_weight"},
    {"visual.blocks.*.attn.qkv.bias", "visual.transformer.resblocks.*.attn.in_proj_bias"},
    {"visual.blocks.*.attn.proj.*", "visual.transformer.resblocks.*.attn.out_proj.*"},
    {"visual.blocks.*.norm2.*", "visual.transformer.resblocks.*.ln_2.*"},
    {"visual.blocks.*.mlp.fc1.*", "visual.transformer.resblocks.*.mlp.c_fc.*"},
    {"visual.blocks.*.mlp.fc2.*", "visual.transformer.resblocks.*.mlp.c_proj.*"},
    {"visual.norm.*", "visual.ln_post.*"},
    {"visual.projection.weight", "visual.proj", Form::kTransposed},
};

const Rules kOpenAiResNet{
    {"visual.stem.conv*.weight", "visual.conv*.weight"},
    {"visual.stem.bn*.*", "visual.bn*.*"},
    {"visual.layer*.*.*.*", "visual.layer*.*.*.*"},
    {"visual.layer*.*.downsample.*.*", "visual.layer*.*.downsample.*.*"},
    {"visual.pool.position", "visual.attnpool.positional_embedding"},
    {"visual.pool.*.*", "visual.attnpool.*.*"},
};

const Rules kHuggingFaceVit{
    {"visual.stem.patch.weight", "vision_model.embeddings.patch_embedding.weight"},
    {"visual.stem.class_token", "vision_model.embeddings.class_embedding"},
    {"visual.stem.position", "vision_model.embeddings.position_embedding.weight"},
    {"visual.stem.norm.*", "vision_model.pre_layrnorm.*"},
    {"visual.blocks.*.norm1.*", "vision_model.encoder.layers.*.layer_norm1.*"},
    {"visual.blocks.*.attn.qkv.*", "vision_model.encoder.layers.*.self_attn.?_proj.*", Form::kStacked},
    {"visual.blocks.*.attn.proj.*", "vision_model.encoder.layers.*.self_attn.out_proj.*"},
    {"visual.blocks.*.norm2.*", "vision_model.encoder.layers.*.layer_norm2.*"},
    {"visual.blocks.*.mlp.*.*", "vision_model.encoder.layers.*.mlp.*.*"},
    {"visual.norm.*", "vision_model.post_layernorm.*"},
    {"visual.projection.weight", "visual_projection.weight"},
};

const Rules kHuggingFaceText{
    {"text.stem.token.weight", "text_model.embeddings.token_embedding.weight"},
    {"text.stem.position", "text_model.embeddings.position_embedding.weight"},
    {"text.blocks.*.norm1.*", "text_model.encoder.layers.*.layer_norm1.*"},
    {"text.blocks.*.attn.qkv.*", "text_model.encoder.layers.*.self_attn.?_proj.*", Form::kStacked},
    {"text.blocks.*.attn.proj.*", "text_model.encoder.layers.*.self_attn.out_proj.*"},
    {"text.blocks.*.norm2.*", "text_model.encoder.layers.*.layer_norm2.*"},
    {"text.blocks.*.mlp.*.*", "text_model.encoder.layers.*.mlp.*.*"},
    {"text.norm.*", "text_model.final_layer_norm.*"},
    {"text.projection.weight", "text_projection.weight"},
    {"logit_scale", "logit_scale"},
};

const Rules kTorchvisionResNet{
    {"stem.conv1.weight", "conv1.weight"},
    {"stem.bn1.*", "bn1.*"},
    {"layer*.*.*.*", "layer*.*.*.*"},
    {"layer*.*.downsample.*.*", "layer*.*.downsample.*.*"},
    {"head.*", "fc.*"},
};

const Rules kTorchvisionVit{
    {"stem.patch.*", "conv_proj.*"},
    {"stem.class_token", "class_token", Form::kToken},
    {"stem.position", "encoder.pos_embedding", Form::kRow},
    {"blocks.*.norm1.*", "encoder.layers.encoder_layer_*.ln_1.*"},
    {"blocks.*.attn.qkv.weight", "encoder.layers.encoder_layer_*.self_attention.in_proj_weight"},
    {"blocks.*.attn.qkv.bias", "encoder.layers.encoder_layer_*.self_attention.in_proj_bias"},
    {"blocks.*.attn.proj.*", "encoder.layers.encoder_layer_*.self_attention.out_proj.*"},
    {"blocks.*.norm2.*", "encoder.layers.encoder_layer_*.ln_2.*"},
    {"blocks.*.mlp.fc1.*", "encoder.layers.encoder_layer_*.mlp.0.*"},
    {"blocks.*.mlp.fc2.*", "encoder.layers.encoder_layer_*.mlp.3.*"},
    {"blocks.*.mlp.fc1.*", "encoder.layers.encoder_layer_*.mlp.linear_1.*"},
    {"blocks.*.mlp.fc2.*", "encoder.layers.encoder_layer_*.mlp.linear_2.*"},
    {"norm.*", "encoder.ln.*"},
    {"head.*", "heads.head.*"},
};

const Rules kTimmVit{
    {"stem.patch.*", "patch_embed.proj.*"},
    {"stem.class_token", "cls_token", Form::kToken},
    {"stem.position", "pos_embed", Form::kRow},
    {"stem.norm.*", "norm_pre.*"},
    {"blocks.*.norm1.*", "blocks.*.norm1.*"},
    {"blocks.*.attn.qkv.*", "blocks.*.attn.qkv.*"},
    {"blocks.*.attn.proj.*", "blocks.*.attn.proj.*"},
    {"blocks.*.norm2.*", "blocks.*.norm2.*"},
    {"blocks.*.mlp.*.*", "blocks.*.mlp.*.*"},
    {"norm.*", "norm.*"},
    {"norm.*", "fc_norm.*"},
    {"head.*", "head.*"},
};

}  // namespace

const std::vector<LayoutTable>& layout_tables() {
  static const Family &resnet = find_family("resnet"), &vit = find_family("vit"),
                      &clip_resnet = find_family("clip-resnet"), &clip_vit = find_family("clip-vit");
  static const ConfigFile kHuggingFace{"config.json", read_huggingface_config};
  static const std::vector<LayoutTable> kTables{
      {.layout = Layout::kOpenAi,
       .family = &clip_vit,
       .signature = "visual.class_embedding",
       .rules = {&kOpenAiVit, &kOpenAiText},
       .config = {"open_clip_config.json", read_open_clip_vit_config}},
      {.layout = Layout::kOpenAi,
       .family = &clip_resnet,
       .signature = "visual.layer1.0.conv1.weight",
       .rules = {&kOpenAiResNet, &kOpenAiText},
       .config = {"open_clip_config.json", read_open_clip_resnet_config}},
      {.layout = Layout::kHuggingFace,
       .family = &clip_vit,
       .signature = "vision_model.embeddings.patch_embedding.weight",
       .rules = {&kHuggingFaceVit, &kHuggingFaceText},
       .config = kHuggingFace},
      {.layout = Layout::kHuggingFace,
       .family = &clip_vit,
       .signature = "embeddings.patch_embedding.weight",
       .rules = {&kHuggingFaceVit, &kHuggingFaceText},
       .missing = "vision_model.",
       .config = kHuggingFace},
      {.layout = Layout::kTorchvision,
       .family = &resnet,
       .signature = "layer1.0.conv1.weight",
       .rules = {&kTorchvisionResNet}},
      {.layout = Layout::kTorchvision,
       .family = &vit,
       .signature = "conv_proj.weight",
       .rules = {&kTorchvisionVit}},
      // timm has torchvision's names for ResNets.
      {.layout = Layout::kTimm,
       .family = &resnet,
       .signature = "layer1.0.conv1.weight",
       .rules = {&kTorchvisionResNet}},
      {.layout = Layout::kTimm,
       .family = &vit,
       .signature = "patch_embed.proj.weight",
       .rules = {&kTimmVit},
       .config = {"config.json", read_timm_config}},
  };
  return kTables;
}

const std::vector<PreprocessingFile>& preprocessing_files() {
  static const std::vector<PreprocessingFile> kFiles{
      {"processor_config.json", Layout::kHuggingFace, read_huggingface_preprocessing},
      {"preprocessor_config.json", Layout::kHuggingFace, read_huggingface_preprocessing},
      {"open_clip_config.json", Layout::kOpenAi, read_open_clip_preprocessing},
      {"config.json", Layout::kTimm, read_timm_preprocessing},
  };
  return kFiles;
}

const std::vector<Leftover>& leftovers() {
  static const std::vector<Leftover> kLeftovers{
      {"*position_ids", "positions, which are counted"},
      {"*attn_mask", "the causal mask, which is drawn"},
      {"input_resolution", "a size, which the shapes say"},
      {"context_length", "a size, which the shapes say"},
      {"vocab_size", "a size, which the shapes say"},
      {"fc.*.*", "a projection head of pre-training"},
      {"head.*.*", "a projection head of pre-training"},
      {"decoder_*", "MAE's decoder"},
      {"mask_token", "MAE's decoder"},
      {"*logit_bias", "SigLIP's bias"},
      {"n_averaged", "a counter of averaging"},
  };
  return kLeftovers;
}

}  // namespace tpgm
