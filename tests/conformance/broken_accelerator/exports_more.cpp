// BROKEN: it was linked without the SDK's list of what may be seen.
extern "C" __attribute__((visibility("default"))) int pliant_broken_one_more() {
  return 1;
}
