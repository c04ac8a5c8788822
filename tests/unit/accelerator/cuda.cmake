# The tests of any accelerator again, on cuda with a runtime in software; and what only cuda has.
if(NOT TARGET soft_cudart)
  return()
endif()
foreach(test streams memory ipc ipc_event work arithmetic limits)
  add_dependencies(test_accelerator_${test} pliant_accelerator_cuda soft_cudart)
  pliant_test_path(test_accelerator_${test} PLIANT_SOFT_CUDA "${PLIANT_SOFT_CUDA_DIR}/$<TARGET_FILE_NAME:soft_cudart>")
  foreach(way cuda cuda_delayed cuda_without_kernels)
    doctest_discover_tests(test_accelerator_${test} TEST_PREFIX "accelerator_${test}: ${way}: " EXTRA_ARGS --on=${way}
      PROPERTIES TIMEOUT 120 ENVIRONMENT PLIANT_TEST_ACCELERATOR=${way})
  endforeach()
endforeach()
function(pliant_check_cuda sentence checks)
  add_test(NAME "conformance: ${sentence}" ${ARGN} COMMAND ${CMAKE_COMMAND} -DPLIANT=$<TARGET_FILE:pliant>
    -DFILE=$<TARGET_FILE:pliant_accelerator_cuda> "-DONLY=${checks}" -DFAILS= -DWARNS= -DMAY=
    -P ${PROJECT_SOURCE_DIR}/tests/conformance/expect_findings.cmake)
  set_tests_properties("conformance: ${sentence}" PROPERTIES TIMEOUT 300 COST 70
    ENVIRONMENT "LD_LIBRARY_PATH=${PLIANT_SOFT_CUDA_DIR};PLIANT_SOFT_CUDA_DEVICES=8")
endfunction()
# Every type at every number of ranks goes through the double of NCCL alike.
pliant_check_cuda("accelerator-cuda.pliant.so with a software device" "${PLIANT_CHECKS_WITHOUT_SWEEPS}")
pliant_check_cuda("accelerator-cuda.pliant.so with a software device, all checks" "." CONFIGURATIONS Long)
add_dependencies(test_conformance soft_cudart soft_nccl)
pliant_check_generic(cuda "LD_LIBRARY_PATH=${PLIANT_SOFT_CUDA_DIR}")
# Ranks with a device each, on an NCCL that tells of no death, no abort and no rank that left: core does.
add_test(NAME "conformance: generic collectives over cuda with an NCCL that notices nothing" COMMAND ${CMAKE_COMMAND} -DPLIANT=$<TARGET_FILE:pliant>
  -DFILE=$<TARGET_FILE:generic_over> "-DONLY=^(failure|renewal)[.]" "-DFAILS=" "-DWARNS=" "-DMAY="
  -P ${PROJECT_SOURCE_DIR}/tests/conformance/expect_findings.cmake)
set_tests_properties("conformance: generic collectives over cuda with an NCCL that notices nothing" PROPERTIES TIMEOUT 400 ENVIRONMENT
  "PLIANT_TEST_GENERIC_OVER=$<TARGET_FILE:pliant_accelerator_cuda>;PLIANT_TEST_CARRIER_DIR=${PLIANT_PLUGIN_BUILD_DIR};LD_LIBRARY_PATH=${PLIANT_SOFT_CUDA_DIR};PLIANT_SOFT_CUDA_DEVICES=8;PLIANT_SOFT_NCCL_DEAF=1")
pliant_add_test(accelerator_cuda_absent SOURCES cuda_absent_test.cpp)
pliant_add_test(accelerator_cuda SOURCES cuda_test.cpp)
pliant_add_test(accelerator_cuda_pool SOURCES cuda_pool_test.cpp)
pliant_add_test(accelerator_cuda_nccl SOURCES cuda_nccl_test.cpp nccl_layout.cpp)
pliant_add_test(accelerator_cuda_peers SOURCES cuda_peers_test.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/../../../accelerators/cuda/peer_page.cpp ${CMAKE_CURRENT_SOURCE_DIR}/../../../accelerators/cuda/peers.cpp
  LIBRARIES pliant_common_cpu_device)
pliant_add_test(accelerator_cuda_window SOURCES cuda_window_test.cpp)
pliant_add_test(accelerator_cuda_ipc SOURCES cuda_ipc_test.cpp LIBRARIES pliant_common_cpu_device)
pliant_add_test(accelerator_cuda_shared SOURCES cuda_shared_test.cpp LIBRARIES pliant_common_cpu_device)
add_dependencies(test_accelerator_cuda soft_cudart_12)
pliant_test_path(test_accelerator_cuda PLIANT_SOFT_CUDA_12 "${PLIANT_SOFT_CUDA_DIR}/$<TARGET_FILE_NAME:soft_cudart_12>")
if(PLIANT_NVCC)
  target_compile_definitions(test_accelerator_cuda PRIVATE PLIANT_CUDA_KERNELS)
endif()
target_include_directories(test_accelerator_cuda SYSTEM PRIVATE ${PLIANT_CUDA_INCLUDE_DIR})
foreach(test generic cuda_absent cuda cuda_pool cuda_nccl cuda_window cuda_ipc cuda_shared driver generic_messages)
  add_dependencies(test_accelerator_${test} pliant_accelerator_cuda soft_cudart soft_nccl soft_old_nccl)
  pliant_test_path(test_accelerator_${test} PLIANT_SOFT_CUDA "${PLIANT_SOFT_CUDA_DIR}/$<TARGET_FILE_NAME:soft_cudart>")
  pliant_test_path(test_accelerator_${test} PLIANT_SOFT_NCCL "${PLIANT_SOFT_CUDA_DIR}/$<TARGET_FILE_NAME:soft_nccl>")
  pliant_test_path(test_accelerator_${test} PLIANT_SOFT_OLD_NCCL "${PLIANT_SOFT_CUDA_DIR}/$<TARGET_FILE_NAME:soft_old_nccl>")
endforeach()
