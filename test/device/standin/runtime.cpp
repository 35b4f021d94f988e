// SPDX-License-Identifier: Apache-2.0
// The runtime's calls, as far as the library and its tests make them. See standin.hpp.
#include "state.hpp"

#include <csignal>
#include <cstdio>

using namespace standin;

struct CUevent_st {
  std::mutex lock;
  std::condition_variable changed;
  std::uint64_t recorded = 0, reached = 0;
};
struct CUgraph_st {
  std::vector<job> jobs;
};
struct CUgraphExec_st {
  std::vector<job> jobs;
};

namespace {

std::atomic<long> calls{0};
std::atomic<long> flushes{0};
std::atomic<long> fail_at{setting("STANDIN_FAIL", 0)};
std::atomic<long> kill_at{0};
std::atomic<int> kill_by{SIGKILL};
std::atomic<char const*> failed{nullptr};
int current_device() { return chosen_device < 0 ? 0 : chosen_device; }
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t give(cudaError_t e) {
  if (e != cudaSuccess) last_error = e;
  return e;
}

#define STANDIN_CALL \
  if (strikes(__func__)) return give(cudaErrorUnknown)
// What allocates or waits for the device would not be replayed by a graph, so a capture that is under way forbids it.
#define STANDIN_CALL_OUTSIDE_CAPTURE \
  STANDIN_CALL;                      \
  if (spoils_capture()) return give(cudaErrorStreamCaptureUnsupported)

bool spoils_capture() {
  state& s = state::get();
  std::lock_guard const held(s.lock);
  for (CUstream_st* stream : s.streams)
    if (stream->recording != nullptr) return stream->spoilt = true;
  return false;
}

CUstream_st& stream_of(cudaStream_t stream) {
  if (number(stream) > 2) return *stream;
  static std::map<int, CUstream_st*> standard;
  state& s = state::get();
  std::lock_guard const held(s.lock);
  CUstream_st*& mine = standard[current_device()];
  if (mine == nullptr) s.streams.push_back(mine = new CUstream_st(current_device()));
  return *mine;
}

/// Into the stream, or into the graph that is made of it.
cudaError_t push(cudaStream_t stream, job j) {
  CUstream_st& to = stream_of(stream);
  if (to.recording != nullptr)
    to.recording->push_back(std::move(j));
  else
    to.push(std::move(j));
  return cudaSuccess;
}

/// Waits for all that is under way on a device, as much of the runtime does.
void drain(int device) {
  state& s = state::get();
  std::vector<CUstream_st*> all;
  {
    std::lock_guard const held(s.lock);
    for (CUstream_st* stream : s.streams)
      if (stream->device == device) all.push_back(stream);
  }
  for (CUstream_st* stream : all) stream->drain();
}
int device_of(void const* at) {
  state& s = state::get();
  std::lock_guard const held(s.lock);
  auto const found = s.find(number(at));
  return found == s.regions.end() ? current_device() : found->second.device;
}

int devices() { return setting("STANDIN_DEVICES", 2); }
constexpr int processors = 4, blocks_per_processor = 4;

cudaError_t launch(void const* stub, dim3 grid, dim3 block, void** arguments, cudaStream_t stream) {
  state& s = state::get();
  std::function<void(launched const&)> body;
  {
    std::lock_guard const held(s.lock);
    auto const known = s.bodies.find(stub);
    if (known == s.bodies.end()) return cudaErrorInvalidDeviceFunction;
    body = known->second.first(known->second.second, arguments);
  }
  unsigned const blocks = grid.x * grid.y * grid.z, threads = block.x * block.y * block.z;
  if (blocks == 0 || threads == 0 || threads > 1024) return cudaErrorInvalidConfiguration;
  if (stream_of(stream).device != current_device()) return cudaErrorInvalidResourceHandle;
  return push(stream, [body, blocks, threads] {
    std::vector<std::thread> others;
    for (unsigned b = 1; b < blocks; ++b) others.emplace_back([&body, blocks, threads, b] { body({blocks, threads, b}); });
    body({blocks, threads, 0});
    for (std::thread& t : others) t.join();
  });
}

/// What a handle says, within the 64 bytes that there are.
struct handle_text {
  std::int64_t process, file;
  std::uint64_t bytes, device, exporter;
};

cudaError_t allocate(void** out, std::size_t bytes, origin from) {
  chosen_device = current_device();
  if (bytes == 0) return *out = nullptr, cudaSuccess;
  constexpr std::size_t page = 4096;
  std::size_t const rounded = (bytes + page - 1) / page * page;
  int const file = ::memfd_create("standin", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<::off_t>(rounded)) != 0) return ::close(file), cudaErrorMemoryAllocation;
  void* const at = place(file, rounded);
  if (at == nullptr) return ::close(file), cudaErrorMemoryAllocation;
  state& s = state::get();
  std::lock_guard const held(s.lock);
  region r;
  r.bytes = rounded, r.from = from, r.device = current_device(), r.file = file, r.id = s.next_id++;
  s.regions[number(at)] = r;
  *out = at;
  return cudaSuccess;
}

cudaError_t release(void* at, origin from) {
  if (at == nullptr) return cudaSuccess;
  state& s = state::get();
  std::lock_guard const held(s.lock);
  auto const found = s.regions.find(number(at));
  if (found == s.regions.end() || found->second.from != from) return cudaErrorInvalidValue;
  ::munmap(at, found->second.bytes);
  ::close(found->second.file);
  s.freed.emplace(found->second.bytes, found->first);
  s.regions.erase(found);
  return cudaSuccess;
}

}  // namespace

bool standin::strikes(char const* name) {
  static bool const trace = setting("STANDIN_TRACE", 0) != 0;
  long const n = ++calls;
  if (trace) std::fprintf(stderr, "standin %d: %ld %s\n", static_cast<int>(::getpid()), n, name);
  if (n == kill_at.load()) ::raise(kill_by);
  if (n != fail_at.load()) return false;
  failed = name;
  return true;
}

void* standin::place(int file, std::size_t bytes) {
  state& s = state::get();
  std::lock_guard const held(s.lock);
  void* at = MAP_FAILED;
  auto const again = s.freed.find(bytes);
  if (again != s.freed.end()) {
    at = ::mmap(pointer(again->second), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
    s.freed.erase(again);
  }
  if (at == MAP_FAILED) at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? nullptr : at;
}

extern "C" {

void standin_register(void const* stub, body_maker make, void* body) {
  std::lock_guard const held(state::get().lock);
  state::get().bodies[stub] = {make, body};
}
long standin_calls() { return calls; }
void standin_fail_at(long call) { calls = 0, kill_at = 0, fail_at = call, failed = nullptr; }
void standin_kill_at(long call, int signal) { calls = 0, kill_by = signal, kill_at = call, fail_at = 0, failed = nullptr; }
char const* standin_failed() { return failed; }
int standin_allocations() {
  std::lock_guard const held(state::get().lock);
  int n = 0;
  for (auto const& [at, r] : state::get().regions) n += r.from == origin::device || r.from == origin::host || r.from == origin::registered;
  return n;
}
long standin_flushes() { return flushes; }
int standin_mappings() {
  std::lock_guard const held(state::get().lock);
  int n = 0;
  for (auto const& [at, r] : state::get().regions) n += r.from == origin::opened || r.from == origin::mapped;
  return n;
}

// Registration by the compiler's code, before main.
void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterFunction(void**, char const*, char*, char const*, int, uint3*, uint3*, dim3*, dim3*, int*) {}
void __cudaRegisterVar(void**, char*, char*, char const*, int, std::size_t, int, int) {}

thread_local struct {
  dim3 grid, block;
  std::size_t shared;
  void* stream;
} configuration;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, void* stream) {
  configuration = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  *grid = configuration.grid, *block = configuration.block, *shared = configuration.shared;
  *static_cast<void**>(stream) = configuration.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, void const* stub) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t, cudaStream_t stream) {
  STANDIN_CALL;
  return give(launch(kernel, grid, block, arguments, stream));
}

cudaError_t cudaLaunchKernel(void const* stub, dim3 grid, dim3 block, void** arguments, std::size_t, cudaStream_t stream) {
  STANDIN_CALL;
  return give(launch(stub, grid, block, arguments, stream));
}
cudaError_t cudaLaunchKernelExC(cudaLaunchConfig_t const* how, void const* stub, void** arguments) {
  STANDIN_CALL;
  return give(launch(stub, how->gridDim, how->blockDim, arguments, how->stream));
}
cudaError_t cudaLaunchCooperativeKernel(void const* stub, dim3 grid, dim3 block, void** arguments, std::size_t, cudaStream_t stream) {
  STANDIN_CALL;
  if (grid.x * grid.y * grid.z > processors * blocks_per_processor) return give(cudaErrorCooperativeLaunchTooLarge);
  return give(launch(stub, grid, block, arguments, stream));
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void const*, int, std::size_t, unsigned) {
  STANDIN_CALL;
  *blocks = blocks_per_processor;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void const*, int, std::size_t) {
  STANDIN_CALL;
  *blocks = blocks_per_processor;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(void const*, cudaFuncAttribute, int) {
  STANDIN_CALL;
  return cudaSuccess;
}

char const* cudaGetErrorString(cudaError_t e) { return e == cudaSuccess ? "no error" : "an error of the stand-in"; }
char const* cudaGetErrorName(cudaError_t e) { return e == cudaSuccess ? "cudaSuccess" : "cudaError"; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
  STANDIN_CALL;
  *count = devices();
  return *count == 0 ? give(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  STANDIN_CALL;
  *device = current_device();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  STANDIN_CALL;
  if (device < 0 || device >= devices()) return give(cudaErrorInvalidDevice);
  chosen_device = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  STANDIN_CALL;
  *value = attribute == cudaDevAttrMultiProcessorCount ? processors : 1;
  if (attribute == cudaDevAttrGPUDirectRDMAWritesOrdering && setting("STANDIN_RDMA_UNORDERED", 0) == 0)
    *value = cudaGPUDirectRDMAWritesOrderingOwner;
  return cudaSuccess;
}
cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget, cudaFlushGPUDirectRDMAWritesScope) {
  STANDIN_CALL;
  ++flushes;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int capacity, int device) {
  STANDIN_CALL;
  std::snprintf(text, static_cast<std::size_t>(capacity), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, char const* text) {
  STANDIN_CALL;
  unsigned bus = 0;
  std::sscanf(text, "0000:%x", &bus);
  if (bus == 0 || static_cast<int>(bus) > devices()) return give(cudaErrorInvalidDevice);
  *device = static_cast<int>(bus) - 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  STANDIN_CALL;
  *can = device != peer && setting("STANDIN_NO_PEER", 0) == 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  STANDIN_CALL;
  static thread_local std::uint64_t enabled = 0;
  if (setting("STANDIN_NO_PEER", 0) != 0) return give(cudaErrorPeerAccessUnsupported);
  std::uint64_t const bit = std::uint64_t{1} << (current_device() * 8 + peer);
  return (std::exchange(enabled, enabled | bit) & bit) != 0 ? give(cudaErrorPeerAccessAlreadyEnabled) : cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  STANDIN_CALL_OUTSIDE_CAPTURE;
  drain(current_device());
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  STANDIN_CALL_OUTSIDE_CAPTURE;
  return give(allocate(out, bytes, origin::device));
}
cudaError_t cudaMallocManaged(void** out, std::size_t bytes, unsigned) {
  STANDIN_CALL_OUTSIDE_CAPTURE;
  return give(allocate(out, bytes, origin::device));  // which the host reaches here as well
}
cudaError_t cudaFree(void* at) {
  STANDIN_CALL_OUTSIDE_CAPTURE;
  drain(device_of(at));
  return give(release(at, origin::device));
}
cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned) {
  STANDIN_CALL_OUTSIDE_CAPTURE;
  return give(allocate(out, bytes, origin::host));
}
cudaError_t cudaFreeHost(void* at) {
  STANDIN_CALL_OUTSIDE_CAPTURE;
  drain(device_of(at));
  return give(release(at, origin::host));
}
cudaError_t cudaHostRegister(void* at, std::size_t bytes, unsigned) {
  STANDIN_CALL_OUTSIDE_CAPTURE;
  state& s = state::get();
  std::lock_guard const held(s.lock);
  if (number(at) % 4096 != 0) return give(cudaErrorInvalidValue);
  if (s.find(number(at)) != s.regions.end()) return give(cudaErrorHostMemoryAlreadyRegistered);
  region r;
  r.bytes = bytes, r.from = origin::registered, r.device = current_device(), r.id = s.next_id++;
  s.regions[number(at)] = r;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* at) {
  STANDIN_CALL_OUTSIDE_CAPTURE;
  drain(current_device());
  state& s = state::get();
  std::lock_guard const held(s.lock);
  auto const found = s.regions.find(number(at));
  if (found == s.regions.end() || found->second.from != origin::registered) return give(cudaErrorHostMemoryNotRegistered);
  s.regions.erase(found);
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** out, void* at, unsigned) {
  STANDIN_CALL;
  state& s = state::get();
  std::lock_guard const held(s.lock);
  auto const found = s.find(number(at));
  if (found == s.regions.end() || (found->second.from != origin::host && found->second.from != origin::registered)) {
    return give(cudaErrorInvalidValue);
  }
  *out = at;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, void const* at) {
  STANDIN_CALL;
  state& s = state::get();
  std::lock_guard const held(s.lock);
  auto const found = s.find(number(at));
  *out = {};
  out->type = cudaMemoryTypeUnregistered;
  out->device = -1;
  out->hostPointer = const_cast<void*>(at);
  if (found == s.regions.end()) return cudaSuccess;
  bool const host = found->second.from == origin::host || found->second.from == origin::registered;
  out->type = host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  out->device = found->second.device;
  out->devicePointer = const_cast<void*>(at);
  if (!host) out->hostPointer = nullptr;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  STANDIN_CALL;
  // Pageable memory of the host is read before the call returns.
  state& s = state::get();
  bool pageable = kind == cudaMemcpyHostToDevice;
  {
    std::lock_guard const held(s.lock);
    pageable = pageable && s.find(number(from)) == s.regions.end();
  }
  if (!pageable) return push(stream, [=] { std::memcpy(to, from, bytes); });
  return push(stream, [to, copy = std::string(static_cast<char const*>(from), bytes)] { std::memcpy(to, copy.data(), copy.size()); });
}
cudaError_t cudaMemcpy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind) {
  STANDIN_CALL_OUTSIDE_CAPTURE;
  drain(current_device());
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t stream) {
  STANDIN_CALL;
  return push(stream, [=] { std::memset(at, value, bytes); });
}
cudaError_t cudaMemset(void* at, int value, std::size_t bytes) {
  STANDIN_CALL_OUTSIDE_CAPTURE;
  drain(current_device());
  std::memset(at, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* all) {
  STANDIN_CALL;
  *all = std::size_t{1} << 40;
  *free = *all;
  std::lock_guard const held(state::get().lock);
  for (auto const& [at, r] : state::get().regions) *free -= r.from == origin::device ? r.bytes : 0;
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* at) {
  STANDIN_CALL;
  state& s = state::get();
  std::lock_guard const held(s.lock);
  auto const found = s.find(number(at));
  if (found == s.regions.end() || found->second.from != origin::device) return give(cudaErrorInvalidValue);
  region const& r = found->second;
  struct ::stat facts {};
  ::fstat(r.file, &facts);
  handle_text const text{::getpid(), r.file, r.bytes, static_cast<std::uint64_t>(r.device), facts.st_ino};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &text, sizeof text);
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** out, cudaIpcMemHandle_t handle, unsigned) {
  STANDIN_CALL;
  handle_text text;
  std::memcpy(&text, &handle, sizeof text);
  if (text.process == ::getpid()) return give(cudaErrorDeviceUninitialized);
  if (static_cast<int>(text.device) != current_device() && setting("STANDIN_NO_PEER", 0) != 0) return give(cudaErrorPeerAccessUnsupported);
  state& s = state::get();
  std::lock_guard const held(s.lock);
  for (auto& [at, r] : s.regions) {
    if (r.from != origin::opened || r.exporter != text.exporter) continue;
    ++r.users;
    return *out = pointer(at), cudaSuccess;
  }
  std::string const path = "/proc/" + std::to_string(text.process) + "/fd/" + std::to_string(text.file);
  int const file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct ::stat facts {};
  bool const same = file >= 0 && ::fstat(file, &facts) == 0 && facts.st_ino == text.exporter;
  void* const mapped = same ? ::mmap(nullptr, text.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (file >= 0) ::close(file);
  if (mapped == MAP_FAILED) return give(cudaErrorMapBufferObjectFailed);
  region r;
  r.bytes = text.bytes, r.from = origin::opened, r.device = static_cast<int>(text.device), r.id = s.next_id++, r.exporter = text.exporter;
  s.regions[number(mapped)] = r;
  *out = mapped;
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* at) {
  STANDIN_CALL;
  drain(current_device());
  state& s = state::get();
  std::lock_guard const held(s.lock);
  auto const found = s.regions.find(number(at));
  if (found == s.regions.end() || found->second.from != origin::opened) return give(cudaErrorInvalidValue);
  if (--found->second.users > 0) return cudaSuccess;
  ::munmap(at, found->second.bytes);
  s.regions.erase(found);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) {
  STANDIN_CALL_OUTSIDE_CAPTURE;
  *out = new CUstream_st(current_device());
  state& s = state::get();
  std::lock_guard const held(s.lock);
  s.streams.push_back(*out);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* out) { return cudaStreamCreateWithFlags(out, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  STANDIN_CALL;
  state& s = state::get();
  {
    std::lock_guard const held(s.lock);
    std::erase(s.streams, stream);
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  STANDIN_CALL_OUTSIDE_CAPTURE;
  stream_of(stream).drain();
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  STANDIN_CALL_OUTSIDE_CAPTURE;
  return stream_of(stream).idle() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* out) {
  STANDIN_CALL;
  *out = stream_of(stream).recording != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) {
  STANDIN_CALL;
  *out = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  STANDIN_CALL;
  drain(current_device());  // a real one is freed once nobody needs it
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  STANDIN_CALL;
  std::uint64_t mine;
  {
    std::lock_guard const held(event->lock);
    mine = ++event->recorded;
  }
  return push(stream, [event, mine] {
    std::lock_guard const held(event->lock);
    if (event->reached < mine) event->reached = mine;
    event->changed.notify_all();
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  STANDIN_CALL;
  std::uint64_t awaited;
  {
    std::lock_guard const held(event->lock);
    awaited = event->recorded;
  }
  return push(stream, [event, awaited] {
    std::unique_lock held(event->lock);
    event->changed.wait(held, [&] { return event->reached >= awaited; });
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  STANDIN_CALL_OUTSIDE_CAPTURE;
  std::lock_guard const held(event->lock);
  return event->reached >= event->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  STANDIN_CALL_OUTSIDE_CAPTURE;
  std::unique_lock held(event->lock);
  event->changed.wait(held, [&] { return event->reached >= event->recorded; });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  STANDIN_CALL;
  *milliseconds = 1;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  STANDIN_CALL;
  CUstream_st& s = stream_of(stream);
  if (number(stream) <= 2 || s.recording != nullptr) return give(cudaErrorStreamCaptureUnsupported);
  s.recording = new std::vector<job>;
  s.spoilt = false;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  STANDIN_CALL;
  CUstream_st& s = stream_of(stream);
  std::unique_ptr<std::vector<job>> const jobs(std::exchange(s.recording, nullptr));
  *out = nullptr;
  if (jobs == nullptr) return give(cudaErrorIllegalState);
  if (s.spoilt) return give(cudaErrorStreamCaptureInvalidated);
  *out = new CUgraph_st{std::move(*jobs)};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  STANDIN_CALL;
  *out = new CUgraphExec_st{graph->jobs};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  STANDIN_CALL;
  for (job const& j : graph->jobs) push(stream, j);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  STANDIN_CALL;
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  STANDIN_CALL;
  delete graph;
  return cudaSuccess;
}

}  // extern "C"
