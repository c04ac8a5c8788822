// The kernels of level_zero in SPIR-V, the very files that are in the plugin: run by an OpenCL device, where there is
// one that takes them or what llvm-spirv reads from them, and compared with the arithmetic of the processors bit by
// bit.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "../accelerators/level_zero/kernels.hpp"
#include "doubles/level_zero/spirv.hpp"
#include "opencl_device.hpp"
#include "pliant/sdk/arithmetic.hpp"
#include "pliant/sdk/optimizer_arithmetic.hpp"

using namespace pliant_test;
using pliant::sdk::DType;
using pliant::sdk::ReduceOp;
namespace kernels = pliant::level_zero::kernels;

namespace {

using Bytes = std::vector<std::byte>;

constexpr std::array kTypes{DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kU8, DType::kF16, DType::kBF16};
constexpr std::array kOps{ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax};
constexpr size_t kGroup = 8;
constexpr size_t kGroups = 5;

bool is_half(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

/// Floats that are hard: zeros, subnormal numbers, halves of last places, the largest, infinity, NaN; as doubles.
const std::vector<double>& hard_values() {
  static const std::vector<double> kAll = [] {
    std::vector<double> made;
    for (const double one : {0.0,
                             1.0,
                             3.0,
                             0x1p-149,
                             0x1.8p-127,
                             0x1p-126,
                             0x1p-24,
                             0x1.8p-25,
                             0x1p-14,
                             0x1.ffcp-15,
                             65504.0,
                             65519.0,
                             65520.0,
                             65536.0,
                             1.00048828125,
                             1.00146484375,
                             0x1.01p0,
                             0x1.03p0,
                             0x1.fffffep127,
                             0x1.ffffffp127,
                             0x1p31,
                             0x1.fffffcp30,
                             0x1p53,
                             0x1p63,
                             0x1.fffffffffffffp62,
                             255.0,
                             255.5,
                             256.0,
                             0x1p-1074,
                             0x1p-1022,
                             0x1.fffffffffffffp1023,
                             std::numeric_limits<double>::infinity()}) {
      made.push_back(one);
      made.push_back(-one);
    }
    made.push_back(std::numeric_limits<double>::quiet_NaN());
    return made;
  }();
  return kAll;
}

/// Hard values first, in an order of its own for each `seed`; then any bits.
Bytes some_values(DType dtype, size_t count, uint32_t seed) {
  std::mt19937_64 random(seed);
  const uint64_t size = pliant::sdk::size_of(dtype);
  Bytes bytes(count * size);
  for (std::byte& one : bytes) one = static_cast<std::byte>(random());
  for (size_t i = 0; i < count && i < 4 * hard_values().size(); ++i) {
    const double value = hard_values()[random() % hard_values().size()];
    pliant::sdk::cast(DType::kF64, &value, dtype, bytes.data() + i * size, 1);
  }
  // Most of the rest is of one magnitude, so that sums round and do not all become infinite.
  for (size_t i = 4 * hard_values().size(); i < count && !pliant::sdk::is_integer(dtype); i += 2) {
    const double value = static_cast<double>(static_cast<int64_t>(random())) * 0x1p-60;
    pliant::sdk::cast(DType::kF64, &value, dtype, bytes.data() + i * size, 1);
  }
  return bytes;
}

bool is_nan_at(const Bytes& bytes, DType dtype, size_t i) {
  if (pliant::sdk::is_integer(dtype)) return false;
  double value = 0;
  pliant::sdk::cast(dtype, bytes.data() + i * pliant::sdk::size_of(dtype), DType::kF64, &value, 1);
  return std::isnan(value);
}

/// Same bits; NaN is NaN, whatever its payload.
void check_same(const Bytes& made, const Bytes& wanted, DType dtype, const std::string& what) {
  const size_t size = pliant::sdk::size_of(dtype);
  for (size_t i = 0; i < wanted.size() / size; ++i) {
    if (std::memcmp(made.data() + i * size, wanted.data() + i * size, size) == 0) continue;
    if (is_nan_at(made, dtype, i) && is_nan_at(wanted, dtype, i)) continue;
    FAIL_CHECK(what << ": element " << i << " has other bits than the processors' arithmetic gives");
    return;
  }
}

/// The device with both programs, found once for all tests.
struct Kernels {
  std::unique_ptr<OpenClDevice> device;
  std::unique_ptr<OpenClProgram> singles, doubles;
  std::unique_ptr<OpenClProgram> rounded;  ///< the singles, for updates; NULL where the device cannot
  std::string why_none;

  [[nodiscard]] const OpenClProgram& of(DType one, DType other) const {
    return one == DType::kF64 || other == DType::kF64 ? *doubles : *singles;
  }
  static const Kernels& get() {
    static const Kernels kAll = [] {
      Kernels made;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
      made.why_none = "sanitizers cannot follow what the compiler of an OpenCL device does";
#else
      made.device = OpenClDevice::find(made.why_none);
#endif
      if (!made.device) return made;
      if (!made.device->has_subnormals() || !made.device->has_doubles()) {
        made.why_none = made.device->name() + " lacks subnormal numbers or doubles";
        made.device.reset();
        return made;
      }
      made.singles = std::make_unique<OpenClProgram>(*made.device, PLIANT_LEVEL_ZERO_SPIRV, PLIANT_LEVEL_ZERO_SPIR);
      made.doubles = std::make_unique<OpenClProgram>(*made.device, PLIANT_LEVEL_ZERO_SPIRV_OF_DOUBLES,
                                                     PLIANT_LEVEL_ZERO_SPIR_OF_DOUBLES);
      if (made.device->rounds_quotients()) {
        made.rounded = std::make_unique<OpenClProgram>(*made.device, PLIANT_LEVEL_ZERO_SPIRV, PLIANT_LEVEL_ZERO_SPIR,
                                                       " -cl-fp32-correctly-rounded-divide-sqrt");
      }
      return made;
    }();
    return kAll;
  }
  /// False, and says so, where there is no device to run on.
  [[nodiscard]] bool are_there() const {
    if (device) {
      MESSAGE("on " << device->name());
    } else {
      MESSAGE("skipped: " << why_none);
    }
    return device != nullptr;
  }
};

Bytes reduced(const Kernels& all, DType dtype, ReduceOp op, std::vector<Bytes>& sources, double scale) {
  const uint64_t size = pliant::sdk::size_of(dtype);
  const uint64_t count = sources[0].size() / size;
  Bytes to(sources[0].size());
  Bytes partial(count * (is_half(dtype) ? sizeof(float) : size));
  for (size_t first = 0; first < sources.size(); first += kernels::kSources) {
    const size_t taken = std::min<size_t>(sources.size() - first, kernels::kSources);
    const uint32_t part =
        (first == 0 ? kernels::kBegins : 0U) | (first + taken == sources.size() ? kernels::kEnds : 0U);
    std::vector<OpenClArgument> arguments{
        OpenClArgument::buffer(to),
        OpenClArgument::buffer(partial),
        OpenClArgument::number(count),
        dtype == DType::kF64 ? OpenClArgument::number(scale) : OpenClArgument::number(static_cast<float>(scale)),
        OpenClArgument::number(static_cast<uint32_t>(taken)),
        OpenClArgument::number(part)};
    for (size_t i = 0; i < kernels::kSources; ++i) {
      arguments.push_back(
          OpenClArgument::buffer(i < taken ? std::span<std::byte>(sources[first + i]) : std::span<std::byte>()));
    }
    all.of(dtype, dtype)
        .run(std::string("pliant_reduce_") + name_of(op) + "_" + name_of(dtype), arguments, kGroup, kGroups);
  }
  return to;
}

soft_ze::Spirv read(const char* path) {
  const std::vector<char> file = bytes_of_file(path);
  return soft_ze::read_spirv(std::as_bytes(std::span(file)));
}

}  // namespace

TEST_CASE("the files hold every kernel, and only one of them asks for doubles") {
  const soft_ze::Spirv singles = read(PLIANT_LEVEL_ZERO_SPIRV);
  const soft_ze::Spirv doubles = read(PLIANT_LEVEL_ZERO_SPIRV_OF_DOUBLES);
  CHECK(singles.refusal == "");
  CHECK(doubles.refusal == "");
  CHECK(singles.capabilities.count(soft_ze::kSpirvFloat64) == 0);
  CHECK(doubles.capabilities.count(soft_ze::kSpirvFloat64) == 1);
  constexpr uint32_t kFloat16 = 9;
  constexpr uint32_t kGenericPointer = 38;
  for (const soft_ze::Spirv* one : {&singles, &doubles}) {
    CHECK(one->capabilities.count(kFloat16) == 0);
    CHECK(one->capabilities.count(kGenericPointer) == 0);
  }
  const auto there = [&](const std::string& name, DType one, DType other) {
    const bool is_double = one == DType::kF64 || other == DType::kF64;
    CAPTURE(name);
    CHECK((is_double ? doubles : singles).kernels.count(name) == 1);
  };
  there("pliant_digest_blocks", DType::kI64, DType::kI64);
  there("pliant_adamw", DType::kF32, DType::kF32);
  there("pliant_squared_norms", DType::kF64, DType::kF64);
  for (const DType dtype : kTypes) {
    for (const ReduceOp op : kOps)
      there(std::string("pliant_reduce_") + name_of(op) + "_" + name_of(dtype), dtype, dtype);
    for (const DType to : kTypes) {
      if (to != dtype) there(std::string("pliant_cast_") + name_of(dtype) + "_" + name_of(to), dtype, to);
    }
  }
}

TEST_CASE("a file that was cut off or is something else is no SPIR-V") {
  std::vector<char> file = bytes_of_file(PLIANT_LEVEL_ZERO_SPIRV);
  const auto refusal = [&](size_t bytes) {
    return soft_ze::read_spirv(std::as_bytes(std::span(file).first(bytes))).refusal;
  };
  CHECK(refusal(file.size()) == "");
  CHECK(refusal(file.size() - 4) != "");
  CHECK(refusal(7) != "");
  CHECK(refusal(0) != "");
  file[0] = 0;
  CHECK(refusal(file.size()) != "");
}

TEST_CASE("reductions in SPIR-V have the bits of the processors' arithmetic") {
  const Kernels& all = Kernels::get();
  if (!all.are_there()) return;
  for (const DType dtype : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const size_t sources : {1U, 2U, 3U, 16U, 17U, 40U}) {
        for (const double scale : {1.0, 1.0 / 3, -0.0, 0x1p-130}) {
          if (pliant::sdk::is_integer(dtype) && scale != 1) continue;
          const uint64_t count = sources == 3 ? 1 : 1023;  // more than there are work items; and one
          std::vector<Bytes> from;
          for (size_t r = 0; r < sources; ++r) from.push_back(some_values(dtype, count, static_cast<uint32_t>(r + 1)));
          std::vector<const void*> inputs;
          for (const Bytes& one : from) inputs.push_back(one.data());
          Bytes wanted(from[0].size());
          pliant::sdk::reduce(dtype, op, inputs, scale, count, wanted.data());
          check_same(reduced(all, dtype, op, from, scale), wanted, dtype,
                     std::string(name_of(op)) + " of " + std::to_string(sources) + " " + name_of(dtype) +
                         " scaled by " + std::to_string(scale));
        }
      }
    }
  }
}

TEST_CASE("casts in SPIR-V have the bits of the processors' arithmetic, of every 16-bit float and of hard numbers") {
  const Kernels& all = Kernels::get();
  if (!all.are_there()) return;
  constexpr uint64_t kCount = 65536;
  for (const DType from : kTypes) {
    Bytes source = some_values(from, kCount, 9);
    if (is_half(from)) {
      for (uint32_t bits = 0; bits < kCount; ++bits) {
        const auto one = static_cast<uint16_t>(bits);
        std::memcpy(source.data() + bits * sizeof(one), &one, sizeof(one));
      }
    }
    for (const DType to : kTypes) {
      if (to == from) continue;
      Bytes made(kCount * pliant::sdk::size_of(to));
      Bytes wanted = made;
      pliant::sdk::cast(from, source.data(), to, wanted.data(), kCount);
      all.of(from, to).run(
          std::string("pliant_cast_") + name_of(from) + "_" + name_of(to),
          {OpenClArgument::buffer(made), OpenClArgument::buffer(source), OpenClArgument::number(kCount)}, kGroup,
          kGroups);
      check_same(made, wanted, to, std::string("cast of ") + name_of(from) + " to " + name_of(to));
    }
  }
}

TEST_CASE("digests in SPIR-V are those of the processors") {
  const Kernels& all = Kernels::get();
  if (!all.are_there()) return;
  constexpr uint64_t kBlocks = 97;  // more than there are work items
  Bytes source = some_values(DType::kU8, kBlocks * pliant::sdk::kDigestBlockBytes, 3);
  Bytes made(kBlocks * sizeof(uint64_t));
  std::vector<uint64_t> wanted(kBlocks);
  pliant::sdk::digest_blocks(wanted.data(), source.data(), kBlocks);
  all.singles->run("pliant_digest_blocks",
                   {OpenClArgument::buffer(made), OpenClArgument::buffer(source), OpenClArgument::number(kBlocks)},
                   kGroup, kGroups);
  CHECK(std::memcmp(made.data(), wanted.data(), made.size()) == 0);
}

TEST_CASE("squared norms in SPIR-V have the bits of the processors' arithmetic") {
  const Kernels& all = Kernels::get();
  if (!all.are_there()) return;
  for (const uint64_t count : {uint64_t{1}, uint64_t{1023}, uint64_t{97 * 1024 + 33}}) {
    Bytes source = some_values(DType::kF32, count, 5);
    Bytes made(pliant::sdk::norm_chunks(count) * sizeof(double));
    Bytes wanted = made;
    pliant::sdk::squared_norms(reinterpret_cast<double*>(wanted.data()), reinterpret_cast<const float*>(source.data()),
                               count);
    all.doubles->run("pliant_squared_norms",
                     {OpenClArgument::buffer(made), OpenClArgument::buffer(source), OpenClArgument::number(count)},
                     kGroup, kGroups);
    check_same(made, wanted, DType::kF64, "squared norms of " + std::to_string(count));
  }
}

TEST_CASE("updates in SPIR-V have the bits of the processors' arithmetic, where roots and quotients are rounded once") {
  const Kernels& all = Kernels::get();
  if (!all.are_there()) return;
  if (!all.rounded) {
    MESSAGE("skipped: " << all.device->name() << " does not round quotients and roots of 32-bit floats once");
    return;
  }
  constexpr uint64_t kCount = 4001;
  const pliant_adamw_update update{sizeof(update), 0.37F, 0.9F, 0.95F, 3.1e-3F, 1.7F, 1e-8F, 1e-4F};
  std::array<Bytes, 4> made;
  for (uint32_t i = 0; i < made.size(); ++i) made[i] = some_values(DType::kF32, kCount, i + 7);
  for (size_t at = 3; at < made[3].size(); at += 4) made[3][at] &= std::byte{0x7f};  // which are squares
  std::array<Bytes, 4> wanted = made;
  const auto floats = [&](size_t i) { return reinterpret_cast<float*>(wanted[i].data()); };
  pliant::sdk::adamw(update, {floats(0), floats(1), floats(2), floats(3), kCount});
  std::vector<OpenClArgument> arguments;
  for (Bytes& one : made) arguments.push_back(OpenClArgument::buffer(one));
  arguments.push_back(OpenClArgument::number(kCount));
  for (const float one : {update.gradient_scale, update.beta1, update.beta2, update.rate, update.correction,
                          update.epsilon, update.decay})
    arguments.push_back(OpenClArgument::number(one));
  all.rounded->run("pliant_adamw", arguments, kGroup, kGroups);
  for (size_t i = 0; i < made.size(); ++i) check_same(made[i], wanted[i], DType::kF32, "an update");
}
