# The tests of any accelerator again, on cuda with a runtime in software; and what only cuda has.
if(NOT TARGET soft_cudart)
  return()
endif()
foreach(test streams memory work arithmetic limits)
  add_dependencies(test_accelerator_${test} pliant_accelerator_cuda soft_cudart)
  target_compile_definitions(test_accelerator_${test} PRIVATE PLIANT_SOFT_CUDA="$<TARGET_FILE:soft_cudart>")
  foreach(way cuda cuda_delayed cuda_without_kernels)
    doctest_discover_tests(test_accelerator_${test} TEST_PREFIX "accelerator_${test}: ${way}: " EXTRA_ARGS --on=${way}
      PROPERTIES TIMEOUT 120 ENVIRONMENT PLIANT_TEST_ACCELERATOR=${way})
  endforeach()
endforeach()
add_test(NAME "conformance: accelerator-cuda.pliant.so with a software device"
  COMMAND pliant plugin check $<TARGET_FILE:pliant_accelerator_cuda>)
set_tests_properties("conformance: accelerator-cuda.pliant.so with a software device" PROPERTIES TIMEOUT 300
  ENVIRONMENT "LD_LIBRARY_PATH=${PLIANT_SOFT_CUDA_DIR}")
add_dependencies(test_conformance soft_cudart soft_nccl)
pliant_add_test(accelerator_cuda_absent SOURCES cuda_absent_test.cpp)
pliant_add_test(accelerator_cuda SOURCES cuda_test.cpp)
pliant_add_test(accelerator_cuda_pool SOURCES cuda_pool_test.cpp)
pliant_add_test(accelerator_cuda_nccl SOURCES cuda_nccl_test.cpp)
if(PLIANT_NVCC)
  target_compile_definitions(test_accelerator_cuda PRIVATE PLIANT_CUDA_KERNELS)
endif()
target_include_directories(test_accelerator_cuda SYSTEM PRIVATE ${PLIANT_CUDA_INCLUDE_DIR})
foreach(test cuda_absent cuda cuda_pool cuda_nccl)
  add_dependencies(test_accelerator_${test} pliant_accelerator_cuda soft_cudart soft_nccl soft_old_nccl)
  target_compile_definitions(test_accelerator_${test} PRIVATE
    PLIANT_SOFT_CUDA="$<TARGET_FILE:soft_cudart>" PLIANT_SOFT_NCCL="$<TARGET_FILE:soft_nccl>"
    PLIANT_SOFT_OLD_NCCL="$<TARGET_FILE:soft_old_nccl>")
endforeach()
