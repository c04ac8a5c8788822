# Every outside library, found once for all folders. docs/dependencies.md says what each is for.
find_package(Threads REQUIRED)
find_package(Boost 1.74 REQUIRED) # headers only
find_package(tomlplusplus REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(tl-expected REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
