// The accelerator level_zero on machines that lack the loader, a driver or a device: 0 devices, and the reason is told.
#include "driver_device.hpp"

using namespace pliant_test;

TEST_CASE("without a loader there are no devices, and the refusal says what to install") {
  const Device device({{}, {}, {}, {{"loader", "libze_loader_that_is_not_there.so.1"}}}, kLevelZeroFile);
  const std::string said = refusal_without_devices(device);
  CAPTURE(said);
  CHECK(contains(said, "device 0 does not exist; devices: 0: cannot open the loader of Level Zero"));
  CHECK(contains(said, "libze_loader_that_is_not_there.so.1"));
  CHECK(contains(said, "libze1"));
}

TEST_CASE("a library that is no loader is named with what it lacks") {
  const Device device({{}, {}, {}, {{"loader", "libm.so.6"}}}, kLevelZeroFile);
  CHECK(contains(refusal_without_devices(device), "libm.so.6 is not a loader of Level Zero: it lacks zeInit"));
}

TEST_CASE("a loader that is not given by name or absolute path is refused before anything is opened") {
  for (const char* loader : {"", "lib/libze_loader.so.1", "./libze_loader.so.1"}) {
    CAPTURE(loader);
    const OptionSettings settings{{}, {}, {}, {{"loader", loader}}};
    CHECK_THROWS_WITH(Device(settings, kLevelZeroFile), doctest::Contains("give a name without '/'"));
  }
}

TEST_CASE("with a loader and no driver there are no devices, and the refusal names the result") {
  const Setting none("ZE_ENABLE_ALT_DRIVERS", "/no/such/driver.so");
  const Device device({}, kLevelZeroFile);
  const std::string said = refusal_without_devices(device);
  CAPTURE(said);
  CHECK(contains(said, "ZE_RESULT_ERROR_UNINITIALIZED"));
  CHECK(contains(said, "install the driver"));
}
