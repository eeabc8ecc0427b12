// Gives FakeTensorMode a CUDA device on a build of PyTorch without CUDA: a device guard whose functions do nothing, and hooks
// that report CUDA as available. Autograd asks both for the stream of the device.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

const c10::Device gpu(c10::DeviceType::CUDA, 0);
const c10::Stream stream(c10::Stream::DEFAULT, gpu);

struct Guard : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device exchangeDevice(c10::Device) const override { return gpu; }
  c10::Device getDevice() const override { return gpu; }
  c10::Stream getStream(c10::Device) const noexcept override { return stream; }
  c10::Stream getDefaultStream(c10::Device) const override { return stream; }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream; }
};

c10::impl::DeviceGuardImplRegistrar guard(c10::DeviceType::CUDA, new Guard());

// PyTorch looks the hooks up by this name.
struct CUDAHooks : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

using at::CUDAHooksArgs;
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace
