#include "elastic/state_transfer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <istream>
#include <memory>
#include <ostream>
#include <streambuf>
#include <utility>
#include <vector>

#include "pliant/error.hpp"

namespace pliant::elastic {
namespace {

constexpr uint64_t kChunkBytes = StateArrays::kChunkBytes;

// Broadcasts bytes through a device buffer, chunk by chunk.
class Relay {
 public:
  Relay(Communicator& group, Stream& stream, const Accelerator& accelerator, int32_t device, int32_t donor)
      : group_(group), stream_(stream), donor_(donor), chunk_(accelerator, device, kChunkBytes) {}

  void share(void* bytes, uint64_t size) {
    auto* at = static_cast<char*>(bytes);
    while (size > 0) {
      const uint64_t n = std::min(size, kChunkBytes);
      if (group_.rank() == donor_) stream_.copy(chunk_.pointer(), at, n);
      group_.broadcast(chunk_.pointer(), n, DType::kU8, donor_, stream_);
      if (group_.rank() != donor_) stream_.copy(at, chunk_.pointer(), n);
      stream_.synchronize();
      at += n;
      size -= n;
    }
  }
  /// Of at most one chunk. `takes`: this rank's bytes become the donor's. Has been copied once the stream has come
  /// here.
  void share_chunk(void* bytes, uint64_t size, bool takes) {
    if (group_.rank() == donor_) stream_.copy(chunk_.pointer(), bytes, size);
    group_.broadcast(chunk_.pointer(), size, DType::kU8, donor_, stream_);
    if (takes) stream_.copy(bytes, chunk_.pointer(), size);
  }
  void share(std::string& text) {
    uint64_t size = text.size();
    share(&size, sizeof(size));
    text.resize(size);
    share(text.data(), size);
  }

 private:
  Communicator& group_;
  Stream& stream_;
  int32_t donor_;
  Buffer chunk_;
};

// What is no array, on its way: pieces of 1 byte to kPieceBytes, and one without bytes at the end.
constexpr size_t kPieceBytes = size_t{1} << 20;

// The donor's end. A stream tells nobody why it failed: what the communicator threw is kept.
class PieceSink final : public std::streambuf {
 public:
  explicit PieceSink(Relay& relay) : relay_(relay), buffer_(kPieceBytes) { clear(); }

  void finish() {
    if (send() && pptr() == pbase()) {
      uint64_t end = 0;
      relay_.share(&end, sizeof(end));
    }
    rethrow();
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 protected:
  int_type overflow(int_type next) override {
    if (!send()) return traits_type::eof();
    if (!traits_type::eq_int_type(next, traits_type::eof())) sputc(traits_type::to_char_type(next));
    return traits_type::not_eof(next);
  }
  pos_type seekoff(off_type offset, std::ios_base::seekdir from, std::ios_base::openmode) override {
    if (offset != 0 || from != std::ios_base::cur) return pos_type(off_type(-1));  // only tellp
    return pos_type(static_cast<off_type>(sent_) + (pptr() - pbase()));
  }

 private:
  void clear() { setp(buffer_.data(), buffer_.data() + buffer_.size()); }
  bool send() {
    if (failure_) return false;
    auto size = static_cast<uint64_t>(pptr() - pbase());
    if (size == 0) return true;
    try {
      relay_.share(&size, sizeof(size));
      relay_.share(buffer_.data(), size);
    } catch (...) {
      failure_ = std::current_exception();
      return false;
    }
    sent_ += size;
    clear();
    return true;
  }

  Relay& relay_;
  std::vector<char> buffer_;
  uint64_t sent_ = 0;
  std::exception_ptr failure_;
};

// The other ranks' end. It holds one piece, or all from there on where the reader seeks beyond it. Where the donor is
// lost it throws, as often as it is read: what has come so far must not pass for all. A stream over it is bad then.
class PieceSource final : public std::streambuf {
 public:
  explicit PieceSource(Relay& relay) : relay_(relay) {}

  /// Receives what nobody has read.
  void drain() {
    keeps_ = false;
    while (receive()) setg(eback(), egptr(), egptr());
    rethrow();
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 protected:
  int_type underflow() override {
    if (gptr() == egptr() && !receive()) return traits_type::eof();
    return traits_type::to_int_type(*gptr());
  }
  pos_type seekoff(off_type offset, std::ios_base::seekdir from, std::ios_base::openmode which) override {
    if (from == std::ios_base::beg) return seekpos(pos_type(offset), which);
    if (from == std::ios_base::cur) return seekpos(pos_type(position() + offset), which);
    keep_all();
    return seekpos(pos_type(end() + offset), which);
  }
  pos_type seekpos(pos_type target, std::ios_base::openmode) override {
    if (off_type(target) > end()) keep_all();
    if (off_type(target) < first_ || off_type(target) > end()) return pos_type(off_type(-1));
    setg(eback(), eback() + (off_type(target) - first_), egptr());
    return target;
  }

 private:
  [[nodiscard]] off_type position() const { return first_ + (gptr() - eback()); }
  [[nodiscard]] off_type end() const { return first_ + (egptr() - eback()); }
  void keep_all() {
    keeps_ = true;
    while (receive()) {
    }
  }
  // One piece more; false at the end.
  bool receive() {
    rethrow();
    if (ended_) return false;
    try {
      uint64_t size = 0;
      relay_.share(&size, sizeof(size));
      ended_ = size == 0;
      if (ended_) return false;
      const off_type at = gptr() - eback();
      if (!keeps_) {
        first_ = end();
        buffer_.clear();
      }
      const size_t had = buffer_.size();
      buffer_.resize(had + size);
      setg(buffer_.data(), buffer_.data() + (keeps_ ? at : 0), buffer_.data() + buffer_.size());
      relay_.share(buffer_.data() + had, size);
      return true;
    } catch (...) {
      failure_ = std::current_exception();
      setg(nullptr, nullptr, nullptr);
      throw;
    }
  }

  Relay& relay_;
  std::vector<char> buffer_;
  off_type first_ = 0;  ///< where in the stream the buffer begins
  bool keeps_ = false;
  bool ended_ = false;
  std::exception_ptr failure_;
};

void give_rest(Relay& relay, const TrainingState& program) {
  PieceSink sink(relay);
  std::ostream out(&sink);
  program.save(out);
  sink.rethrow();
  if (!out) throw Error(Status::kInternal, "the program marked the stream as failed while it saved its state");
  sink.finish();
}

// What the program throws reaches its own rank once the others have what they came for.
std::exception_ptr receive_rest(Relay& relay, TrainingState& program, bool takes) {
  PieceSource source(relay);
  std::exception_ptr refusal;
  if (takes) {
    std::istream in(&source);
    try {
      load_whole(program, in);
    } catch (...) {
      refusal = std::current_exception();
    }
    source.rethrow();
  }
  source.drain();
  return refusal;
}

}  // namespace

void load_whole(TrainingState& program, std::istream& in) {
  program.load(in);
  if (in.rdbuf()->sgetc() == std::istream::traits_type::eof()) return;
  throw Error(Status::kDataLoss,
              "this program did not read all of its saved state; TrainingState::load must read all that save wrote");
}

void share_state(Communicator& group, Stream& stream, const Accelerator& accelerator, int32_t device, int32_t donor,
                 SharedState& state, const StateArrays& arrays, TrainingState& program, bool takes,
                 const std::function<void()>& midway) {
  Relay relay(group, stream, accelerator, device, donor);
  relay.share(&state.step, sizeof(state.step));
  relay.share(state.lr_state);
  relay.share(state.coordinator);
  std::string layout = arrays.layout();
  relay.share(layout);
  arrays.require(layout, fmt::format("rank {}", donor));
  bool struck = false;
  const auto strike = [&] {
    if (!std::exchange(struck, true) && midway) midway();
  };
  arrays.each_chunk([&](void* data, uint64_t bytes) {
    relay.share_chunk(data, bytes, takes);
    strike();
  });
  strike();  // there are none
  stream.synchronize();
  if (group.rank() == donor) return give_rest(relay, program);
  state.refusal = receive_rest(relay, program, takes);
}

std::function<void(std::span<float> values)> sharing_of(Communicator& group, Stream& stream,
                                                        const Accelerator& accelerator, int32_t device, int32_t donor) {
  const auto relay = std::make_shared<Relay>(group, stream, accelerator, device, donor);
  return [relay](std::span<float> values) { relay->share(values.data(), values.size_bytes()); };
}

}  // namespace pliant::elastic
