// Reads the preprocessing of images from the files of transformers, open_clip and timm, and writes that of
// transformers.
#include "tpgm/weights/preprocessing.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "tpgm/base/untrusted.h"
#include "tpgm/weights/json_members.h"

namespace tpgm {
namespace {

using json_members::check_value;
using json_members::child;
using json_members::find_member;
using json_members::Json;
using json_members::parse;
using json_members::Reader;
using json_members::size_of_value;

constexpr const char* kViewWayOut =
    "restore it, or remove it and give `mean`, `std`, `crop-pct` and `interpolation`";
constexpr double kLeastMean = 0, kLeastStd = 1e-6;

bool has_any(const Json& json, std::initializer_list<const char*> keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](const char* key) { return find_member(json, key) != nullptr; });
}

bool read_flag(const Json& json, const char* key, bool otherwise) {
  const Json* value = find_member(json, key);
  if (!value) return otherwise;
  check_value(value->is_boolean(), key, *value, "true or false", kViewWayOut);
  return value->get<bool>();
}

// A mean or std for pixels in 0..1: one number, or one for each of three channels, divided by `unit`.
std::vector<double> read_per_channel(const Json& json, const char* key, double least, double unit) {
  std::vector<double> result;
  const Json* value = find_member(json, key);
  if (!value) return result;
  const auto add = [&](const Json& each) {
    const double number = each.is_number() ? each.get<double>() / unit : -1;
    check_value(number >= least && number <= 1, key, each, "numbers for pixels in 0..1", kViewWayOut);
    result.push_back(number);
  };
  if (value->is_array() && (value->size() == 1 || value->size() == 3)) {
    for (const Json& each : *value) add(each);
  } else {
    check_value(value->is_number(), key, *value, "one number or three", kViewWayOut);
    add(*value);
  }
  return result;
}

// Empty if there is none.
std::string read_keyword(const Json& json, const char* key) {
  const Json* value = find_member(json, key);
  if (!value) return "";
  check_value(value->is_string(), key, *value, "a keyword", kViewWayOut);
  return value->get<std::string>();
}

void set_interpolation(const std::string& name, Preprocessing& into) {
  if (name == "bicubic" || name == "bilinear") {
    into.view.interpolation = name;
  } else if (!name.empty()) {
    into.differences.push_back(
        fmt::format("interpolation '{}' is not known here; it is bicubic", printable(name, 40)));
  }
}

// The crop_pct with which the shorter side becomes `edge` when the crop has `side` pixels.
double share_of(int64_t side, int64_t edge) {
  double share = static_cast<double>(side) / static_cast<double>(edge);
  while (static_cast<int64_t>(static_cast<double>(side) / share) < edge) share = std::nextafter(share, 0.0);
  const bool sane = share >= 0.01 && share <= 8;
  if (!sane) throw Malformed{fmt::format("a crop of {} pixels from {}", side, edge), kViewWayOut};
  return share;
}

// A size of images: a number, two numbers, or an object that says which edges it means.
struct Edges {
  std::optional<int64_t> any, shortest, longest, height, width;

  bool given() const { return any || shortest || longest || height || width; }
  bool both() const { return height || width; }
  // Nothing for a rectangle.
  std::optional<int64_t> side() const {
    return any ? any : shortest ? shortest : height == width ? height : longest;
  }
};

Edges read_edges(const Json& json, const char* key) {
  Edges edges;
  const Json* value = find_member(json, key);
  if (!value) return edges;
  if (value->is_array()) {
    check_value(value->size() == 2, key, *value, "a size, or two", kViewWayOut);
    edges.height = size_of_value(key, value->front(), 1, kViewWayOut);
    edges.width = size_of_value(key, value->back(), 1, kViewWayOut);
  } else if (value->is_object()) {
    const Reader read(*value, kViewWayOut);
    read("shortest_edge", edges.shortest);
    read("longest_edge", edges.longest);
    read("height", edges.height);
    read("width", edges.width);
  } else {
    Reader(json, kViewWayOut)(key, edges.any);
  }
  return edges;
}

constexpr const char* kHere = "here the shorter side is resized and the center cropped";

void add_rectangle(const Edges& edges, Preprocessing& into) {
  if (edges.height != edges.width) into.differences.emplace_back("its images are not square; they are here");
}

// Resizing and cropping as transformers' image processors do it.
void read_geometry(const Json& json, Preprocessing& into) {
  const Edges size = read_edges(json, "size"), crop = read_edges(json, "crop_size");
  const bool resizes = read_flag(json, "do_resize", true);
  const bool crops = read_flag(json, "do_center_crop", crop.given());
  const auto side = crop.side(), edge = size.side();
  // A number alone is the shorter side for processors that crop, and both sides for others.
  const bool squashes = size.both() || (size.any && !crops);
  if (!resizes) {
    into.differences.push_back(fmt::format("do_resize is false; {}", kHere));
  } else if (squashes) {
    into.differences.push_back(fmt::format("it resizes both sides, without their ratio; {}", kHere));
  } else if (size.longest && !size.shortest) {
    into.differences.push_back(fmt::format("it resizes the longer side; {}", kHere));
  } else if (!crops && size.given()) {
    into.differences.push_back(fmt::format("do_center_crop is false; {}", kHere));
  }
  add_rectangle(crops ? crop : size, into);
  into.image_size = crops ? side : edge;
  if (resizes && crops && side && edge) {
    into.view.crop_pct = share_of(*side, *edge);
  } else if (resizes && !crops && size.given()) {
    into.view.crop_pct = 1;
  }
}

}  // namespace

bool read_huggingface_preprocessing(std::string_view file, Preprocessing& into) {
  const Json whole = parse(file, kViewWayOut);
  const Json& json = whole.contains("image_processor") ? child(whole, "image_processor") : whole;
  if (!has_any(json, {"image_mean", "image_std", "size", "crop_size", "resample", "do_normalize"}))
    return false;
  // Its pixels are bytes times rescale_factor, ours bytes / 255.
  double unit = 1;
  if (const Json* factor = find_member(json, "rescale_factor")) {
    const double times = factor->is_number() ? 255 * factor->get<double>() : 0;
    check_value(times > 1 - 1e-6 && times <= 255, "rescale_factor", *factor, "a number from 1/255 to 1",
                kViewWayOut);
    if (times > 1 + 1e-6) unit = times;
  }
  if (!read_flag(json, "do_rescale", true)) {
    unit = 1;
    into.differences.emplace_back("do_rescale is false; pixels are in 0..1 here");
  }
  if (read_flag(json, "rescale_offset", false))
    into.differences.emplace_back("rescale_offset is not known here; pixels are not shifted");
  if (read_flag(json, "do_normalize", true)) {
    into.view.mean = read_per_channel(json, "image_mean", kLeastMean, unit);
    into.view.std = read_per_channel(json, "image_std", kLeastStd, unit);
  } else {
    into.view.mean = {0};
    into.view.std = {1 / unit};
  }
  if (const Json* resample = find_member(json, "resample")) {
    constexpr std::array kPillow{"nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"};
    const double number = resample->is_number_integer() ? resample->get<double>() : -1;
    check_value(number >= 0 && number <= 5, "resample", *resample, "a filter of Pillow, 0 to 5", kViewWayOut);
    set_interpolation(kPillow.at(resample->get<size_t>()), into);
  }
  read_geometry(json, into);
  return true;
}

bool read_open_clip_preprocessing(std::string_view file, Preprocessing& into) {
  const Json whole = parse(file, kViewWayOut);
  const Json& json = child(whole, "preprocess_cfg");
  if (json.empty()) return false;
  into.view.mean = read_per_channel(json, "mean", kLeastMean, 1);
  into.view.std = read_per_channel(json, "std", kLeastStd, 1);
  set_interpolation(read_keyword(json, "interpolation"), into);
  into.view.crop_pct = 1;
  const std::string mode = read_keyword(json, "resize_mode");
  if (!mode.empty() && mode != "shortest")
    into.differences.push_back(fmt::format("resize_mode is '{}'; {}", printable(mode, 40), kHere));
  const Edges size = read_edges(json, "size");
  add_rectangle(size, into);
  into.image_size = size.side();
  return true;
}

bool read_timm_preprocessing(std::string_view file, Preprocessing& into) {
  const Json whole = parse(file, kViewWayOut);
  const Json& nested = child(whole, "pretrained_cfg");
  const Json& json = nested.empty() ? whole : nested;
  const bool is_timms = !nested.empty() || whole.contains("architecture");
  if (!is_timms || !has_any(json, {"mean", "std", "crop_pct", "interpolation"})) return false;
  into.view.mean = read_per_channel(json, "mean", kLeastMean, 1);
  into.view.std = read_per_channel(json, "std", kLeastStd, 1);
  set_interpolation(read_keyword(json, "interpolation"), into);
  if (const Json* crop = find_member(json, "crop_pct")) {
    const bool valid = crop->is_number() && crop->get<double>() >= 0.01 && crop->get<double>() <= 8;
    check_value(valid, "crop_pct", *crop, "a share of the image", kViewWayOut);
    into.view.crop_pct = crop->get<double>();
  }
  const std::string mode = read_keyword(json, "crop_mode");
  if (!mode.empty() && mode != "center")
    into.differences.push_back(fmt::format("crop_mode is '{}'; {}", printable(mode, 40), kHere));
  if (const Json* input = find_member(json, "input_size")) {  // channels, height, width
    check_value(input->is_array() && input->size() == 3, "input_size", *input, "three numbers", kViewWayOut);
    Edges size;
    size.height = size_of_value("input_size", (*input)[1], 1, kViewWayOut);
    size.width = size_of_value("input_size", (*input)[2], 1, kViewWayOut);
    add_rectangle(size, into);
    into.image_size = size.side();
  }
  return true;
}

std::string huggingface_preprocessing(const ImageView& view, int64_t image_size, int64_t channels) {
  const auto per_channel = [&](const std::vector<double>& values) {
    if (channels == 3 && values.size() == 1) return std::vector<double>(3, values.front());
    if (channels == 1 && values.size() == 3) return std::vector{(values[0] + values[1] + values[2]) / 3};
    return values;
  };
  const auto why = complaint(view);
  TORCH_CHECK(why.empty(), "[huggingface_preprocessing] ", why);
  const double share = static_cast<double>(image_size) / view.crop_pct.value();
  const auto edge = std::max<int64_t>(1, static_cast<int64_t>(share));
  return nlohmann::ordered_json{{"image_processor_type", "CLIPImageProcessor"},
                                {"do_resize", true},
                                {"size", {{"shortest_edge", edge}}},
                                {"resample", view.interpolation.value() == "bilinear" ? 2 : 3},
                                {"do_center_crop", true},
                                {"crop_size", {{"height", image_size}, {"width", image_size}}},
                                {"do_rescale", true},
                                {"rescale_factor", 1.0 / 255},
                                {"do_normalize", true},
                                {"image_mean", per_channel(view.mean)},
                                {"image_std", per_channel(view.std)},
                                {"do_convert_rgb", channels == 3}}
             .dump(2) +
         "\n";
}

}  // namespace tpgm
