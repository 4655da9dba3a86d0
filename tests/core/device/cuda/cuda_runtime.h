// The functions of CUDA's runtime that core/device/host_memory.cpp calls, for its test, which defines them.
#pragma once
#include <cstddef>

enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
constexpr unsigned cudaHostRegisterPortable = 1;

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* memory);
cudaError_t cudaDeviceSynchronize();
const char* cudaGetErrorString(cudaError_t error);
