// What workers make of images, and the copy of batches to their device.
#include "tpgm/data/loader.h"

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>
#include <set>
#include <system_error>
#include <utility>

#include "tpgm/base/untrusted.h"
#include "tpgm/data/batch_buffers.h"
#include "tpgm/data/batch_queue.h"
#include "tpgm/data/image_cache.h"

namespace tpgm {
namespace {

constexpr uint64_t kShuffle = 0x5f;  // purpose of the random stream

using ByteValues = std::array<std::array<float, 256>, 3>;

// Normalized values of every byte, in the arithmetic of torchvision's ToTensor and Normalize.
ByteValues normalized_bytes(const LoaderOptions& options) {
  ByteValues table;
  for (int c = 0; c < 3; ++c) {
    const auto mean = static_cast<float>(options.mean()[c]), deviation = static_cast<float>(options.std()[c]);
    for (int v = 0; v < 256; ++v) table[c][v] = (static_cast<float>(v) / 255.0f - mean) / deviation;
  }
  return table;
}

LoaderOptions for_channels(LoaderOptions options) {
  if (options.channels() == 1) {
    const auto average = [](const LoaderOptions::Triple& values) {
      return (values[0] + values[1] + values[2]) / 3;
    };
    options.mean().fill(average(options.mean()));
    options.std().fill(average(options.std()));
  }
  return options;
}

// `to(position, channel, byte)` for every byte that the model sees.
template <typename To>
void each_byte(const Image& image, int64_t channels, const To& to) {
  const int64_t pixels = image.width * image.height;
  const uint8_t* from = image.pixels.data();
  if (channels == 1) {
    for (int64_t i = 0; i < pixels; ++i) to(i, 0, grey(from + 3 * i));
  } else {
    for (int64_t i = 0; i < 3 * pixels; i += 3) {
      for (int c = 0; c < 3; ++c) to(i + c, c, from[i + c]);
    }
  }
}

}  // namespace

class Loader::Impl {
 public:
  Impl(SampleSubset subset, View view, const LoaderOptions& options)
      : subset_(std::move(subset)),
        view_(std::move(view)),
        options_(for_channels(options)),
        size_(std::visit([](const auto& each) { return each.image_size(); }, view_)),
        table_(normalized_bytes(options_)),
        cache_(options.cache(), subset_.samples ? subset_.samples->size() : 0),
        buffers_({options.batch_size(), size_, size_, options.channels()},
                 at::TensorOptions(on_cpu() ? at::kFloat : at::kByte).pinned_memory(!on_cpu()),
                 static_cast<size_t>(options.queue() + 2)) {
    check();
    if (!on_cpu()) {
      const c10::impl::VirtualGuardImpl device(options.device().type());
      if (!options.device().has_index()) options_.device(device.getDevice());
      copies_ = device.getStreamFromGlobalPool(options_.device());
      const auto constants = [&](const LoaderOptions::Triple& values) {
        std::vector<float> numbers(values.begin(), values.begin() + options_.channels());
        return at::tensor(numbers).to(options_.device());
      };
      mean_ = constants(options_.mean());
      std_ = constants(options_.std());
      full_ = at::tensor(255.0f).to(options_.device());
    }
    slots_.resize(static_cast<size_t>(options_.queue()));
    try {
      queue_ = std::make_unique<BatchQueue>(
          options_.workers(), prepare_worker,
          [this](int64_t batch, size_t position) { make_item(slot(batch), position); });
    } catch (const std::system_error& error) {
      TORCH_CHECK(false, "[Loader] cannot start ", options_.workers(), " threads (", error.what(),
                  "); ask for fewer with `workers`");
    }
  }

  int64_t batches() const {
    const int64_t count = subset_.size(), size = options_.batch_size();
    return options_.drop_last() ? count / size : (count + size - 1) / size;
  }

  void start(int64_t epoch, int64_t first_batch) {
    TORCH_CHECK(epoch >= 0 && epoch < (1 << 24) && first_batch >= 0 && first_batch <= batches(),
                "[Loader] cannot start at batch ", first_batch, " of epoch ", epoch, ": an epoch has ",
                batches(), " batches");
    end_epoch();
    started_ = true;
    order_ = subset_.indices;
    if (options_.shuffle())
      Random(options_.seed(), static_cast<uint64_t>(epoch), 0, kShuffle).shuffle(order_);
    epoch_ = epoch;
    open_ = next_ = first_batch;
    end_ = batches();
    queue_->start(first_batch);
    while (open_ < end_ && open_ < next_ + options_.queue()) open_slot();
  }

  std::optional<Batch> next() {
    TORCH_CHECK(started_, "[Loader] call start() first, which says where an epoch begins");
    if (on_cpu()) return ending_at_an_error([&] { return take(/*wait=*/true); });
    // The copy of one batch is under way while the device works on the one before.
    while (ahead_.size() < 2 && !error_ahead_) {
      try {
        auto sent = ending_at_an_error([&]() -> std::optional<Sent> {
          auto batch = take(/*wait=*/ahead_.empty());
          return batch ? std::optional(send(*std::move(batch))) : std::nullopt;
        });
        if (!sent) break;
        ahead_.push_back(*std::move(sent));
      } catch (...) {
        error_ahead_ = std::current_exception();
      }
    }
    if (ahead_.empty() && error_ahead_) std::rethrow_exception(std::exchange(error_ahead_, nullptr));
    if (ahead_.empty()) return std::nullopt;
    auto [batch, arrived] = std::move(ahead_.front());
    ahead_.pop_front();
    const auto stream = c10::impl::VirtualGuardImpl(options_.device().type()).getStream(options_.device());
    arrived->block(stream);
    batch.images.record_stream(stream);
    batch.labels.record_stream(stream);
    return std::move(batch);
  }

  const std::vector<BadImage>& skipped() const { return skipped_; }
  const SampleSubset& subset() const { return subset_; }

 private:
  struct Failure {
    std::string reason;        // why an image is bad; empty if it is not
    std::exception_ptr error;  // anything else
  };
  struct Slot {
    at::Tensor pixels;
    std::vector<int64_t> indices;
    std::vector<Failure> failures;  // of each image; a worker writes that of its image alone
  };
  struct Sent {
    Batch batch;
    std::shared_ptr<c10::Event> arrived;
  };

  bool on_cpu() const { return options_.device().is_cpu(); }

  void check() const {
    TORCH_CHECK(subset_.samples && subset_.size() > 0, "[Loader] there are no images to load");
    TORCH_CHECK(options_.batch_size() > 0 && options_.workers() > 0 && options_.queue() > 0,
                "[Loader] batch_size ", options_.batch_size(), ", workers ", options_.workers(),
                " and queue ", options_.queue(), " must be at least 1");
    TORCH_CHECK(options_.channels() == 1 || options_.channels() == 3, "[Loader] channels ",
                options_.channels(), ": expected 1 or 3");
    TORCH_CHECK(options_.cache() >= 0 && options_.max_pixels() > 0, "[Loader] cache ", options_.cache(),
                " must be at least 0, max_pixels ", options_.max_pixels(), " at least 1");
    TORCH_CHECK(batches() > 0, "[Loader] drop_last leaves nothing of ", subset_.size(),
                " images in batches of ", options_.batch_size());
    for (int c = 0; c < 3; ++c) {
      TORCH_CHECK(
          std::isfinite(options_.mean()[c]) && std::isfinite(options_.std()[c]) && options_.std()[c] > 0,
          "[Loader] mean ", options_.mean()[c], " and std ", options_.std()[c],
          " of a channel: both must be finite, std above 0");
    }
    TORCH_CHECK(size_ > 0, "[Loader] image_size ", size_, " must be at least 1");
  }

  // What `make` returns. If it throws the epoch is over: a caller that continues must not miss a batch
  // unnoticed.
  template <typename Make>
  auto ending_at_an_error(const Make& make) -> decltype(make()) {
    try {
      return make();
    } catch (...) {
      queue_->halt();
      end_ = open_ = next_;
      throw;
    }
  }

  Slot& slot(int64_t batch) { return slots_[static_cast<size_t>(batch % options_.queue())]; }
  void open_slot() {
    Slot& opened = slot(open_);
    const int64_t begin = open_ * options_.batch_size();
    const int64_t end = std::min(begin + options_.batch_size(), subset_.size());
    opened.pixels = buffers_.take();
    opened.indices.assign(order_.begin() + begin, order_.begin() + end);
    opened.failures.assign(opened.indices.size(), {});
    ++open_;
    queue_->open(opened.indices.size());
  }

  static void prepare_worker() {
    at::get_num_threads();   // LibTorch sets OpenMP's number, for this thread, when it is first asked
    omp_set_num_threads(1);  // and must not make threads of its own for every image
  }

  void make_item(Slot& slot, size_t position) {
    try {
      make(slot.pixels, position, epoch_, slot.indices[position]);
    } catch (const Malformed& malformed) {
      slot.failures[position].reason = fmt::format("{}; {}", malformed.reason, malformed.advice);
    } catch (...) {
      slot.failures[position].error = std::current_exception();
    }
  }

  void make(const at::Tensor& pixels, size_t position, int64_t epoch, int64_t index) {
    std::string bytes;
    std::shared_ptr<const Image> decoded = cache_.enabled() ? cache_.get(index) : nullptr;
    if (!decoded) {
      bytes = subset_.samples->read(index);
      if (cache_.enabled()) {
        decoded = std::make_shared<const Image>(EncodedImage(bytes, options_.max_pixels()).decode());
        cache_.put(index, decoded);
      }
    }
    std::optional<EncodedImage> encoded;
    if (decoded) {
      encoded.emplace(decoded);
    } else {
      encoded.emplace(bytes, options_.max_pixels());
    }
    Image image;
    if (const auto* training = std::get_if<TrainViewOptions>(&view_)) {
      Random random(options_.seed(), static_cast<uint64_t>(epoch), static_cast<uint64_t>(index));
      image = train_view(*encoded, *training, random);
    } else {
      image = eval_view(*encoded, std::get<EvalViewOptions>(view_));
    }
    const auto offset = static_cast<int64_t>(position) * size_ * size_ * options_.channels();
    if (on_cpu()) {
      float* to = pixels.data_ptr<float>() + offset;
      each_byte(image, options_.channels(), [&](int64_t i, int c, uint8_t byte) { to[i] = table_[c][byte]; });
    } else {
      uint8_t* to = pixels.data_ptr<uint8_t>() + offset;
      each_byte(image, options_.channels(), [&](int64_t i, int, uint8_t byte) { to[i] = byte; });
    }
  }

  // The next batch, on the CPU, in bytes if it is to be sent; nothing if there is none, or none yet.
  std::optional<Batch> take(bool wait) {
    if (next_ == end_ || !queue_->ready(wait)) return std::nullopt;
    Slot& done = slot(next_);
    Batch batch;
    std::vector<int64_t> good, labels;
    for (size_t i = 0; i < done.indices.size(); ++i) {
      const int64_t index = done.indices[i];
      auto& [reason, error] = done.failures[i];
      if (error) std::rethrow_exception(error);
      if (!reason.empty()) {
        remember({index, subset_.samples->place(index), std::move(reason)});
        continue;
      }
      good.push_back(static_cast<int64_t>(i));
      batch.indices.push_back(index);
      labels.push_back(subset_.samples->label(index));
    }
    batch.images = done.pixels.narrow(0, 0, static_cast<int64_t>(done.indices.size()));
    if (good.size() < done.indices.size()) batch.images = batch.images.index_select(0, at::tensor(good));
    batch.labels = at::tensor(labels, at::TensorOptions(at::kLong));
    if (on_cpu()) batch.images = batch.images.permute({0, 3, 1, 2});
    done.pixels.reset();
    queue_->close();
    ++next_;
    if (open_ < end_) open_slot();
    return batch;
  }

  void remember(BadImage bad) {
    if (options_.on_bad_image() == OnBadImage::kError) {
      TORCH_CHECK(false, "[Loader] '", printable(bad.place, kMaxPath), "': ", printable(bad.reason, kMaxPath),
                  " (to continue without such images: `on-bad-image` skip)");
    }
    if (known_bad_.insert(bad.index).second) skipped_.push_back(std::move(bad));
  }

  Sent send(Batch batch) {
    const c10::StreamGuard guard(*copies_);
    const at::Tensor bytes = batch.images;
    const auto there = bytes.to(options_.device(), /*non_blocking=*/true);
    batch.labels = batch.labels.pin_memory().to(options_.device(), /*non_blocking=*/true);
    batch.images = there.to(at::kFloat).div_(full_).sub_(mean_).div_(std_).permute({0, 3, 1, 2});
    auto arrived = std::make_shared<c10::Event>(options_.device().type());
    arrived->record(*copies_);
    buffers_.in_use(bytes, arrived);
    return {std::move(batch), std::move(arrived)};
  }

  void end_epoch() {
    queue_->start(0);  // no image of this epoch is begun any more
    ahead_.clear();
    error_ahead_ = nullptr;
    for (auto& each : slots_) each = {};
  }

  SampleSubset subset_;
  View view_;
  LoaderOptions options_;
  int64_t size_;
  ByteValues table_;
  ImageCache cache_;
  BatchBuffers buffers_;
  bool started_ = false;
  std::vector<int64_t> order_;
  at::Tensor mean_, std_, full_;
  std::optional<c10::Stream> copies_;
  std::deque<Sent> ahead_;
  std::exception_ptr error_ahead_;  // of the batch after those
  std::vector<BadImage> skipped_;
  std::set<int64_t> known_bad_;

  // Numbers of batches: slots are open up to `open_`, the caller waits for `next_`, the epoch ends before `end_`.
  // Workers read the slots that are open, and the epoch.
  int64_t open_ = 0, next_ = 0, end_ = 0, epoch_ = 0;
  std::vector<Slot> slots_;
  std::unique_ptr<BatchQueue> queue_;  // the last member: its threads use the others
};

Loader::Loader(SampleSubset subset, View view, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(subset), std::move(view), options)) {}
Loader::~Loader() = default;
int64_t Loader::batches() const { return impl_->batches(); }
void Loader::start(int64_t epoch, int64_t first_batch) { impl_->start(epoch, first_batch); }
std::optional<Batch> Loader::next() { return impl_->next(); }
const std::vector<BadImage>& Loader::skipped() const { return impl_->skipped(); }
const SampleSubset& Loader::subset() const { return impl_->subset(); }

}  // namespace tpgm
