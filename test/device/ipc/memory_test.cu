// SPDX-License-Identifier: Apache-2.0
// Registered buffers: kinds of memory, parts of allocations, what is freed and allocated anew, and how many mappings are kept.
#include "gpu_ranks.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <thread>

namespace {

namespace cx = collectx;
constexpr cx::algo::direct direct;
constexpr std::size_t piece = ON_GPU ? std::size_t{2} << 20 : std::size_t{64} << 10;  // the granularity of memory by pieces

/// Physical memory as PyTorch's expandable segments have it: one range of addresses, mapped piece by piece.
class expandable {
 public:
  expandable(int pieces, bool shareable) : bytes_(static_cast<std::size_t>(pieces) * piece) {
    cx::result<cx::detail::driver_calls> driver = cx::detail::driver_calls::load(0);
    void* create = nullptr;
    cudaDriverEntryPointQueryResult found{};
    (void)cudaGetDriverEntryPointByVersion("cuMemCreate", &create, 12000, cudaEnableDefault, &found);
    auto const make = reinterpret_cast<decltype(&::cuMemCreate)>(create);
    driver_ = *driver;
    CUmemAllocationProp how{};
    how.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    how.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    how.requestedHandleTypes = shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    good_ = driver_.reserve(&at_, bytes_, 0, 0, 0) == CUDA_SUCCESS;
    for (int i = 0; i < pieces; ++i) {
      CUmemGenericAllocationHandle handle{};
      good_ = good_ && make(&handle, piece, &how, 0) == CUDA_SUCCESS &&
              driver_.map(at_ + static_cast<std::size_t>(i) * piece, piece, 0, handle, 0) == CUDA_SUCCESS &&
              driver_.release(handle) == CUDA_SUCCESS;
    }
    CUmemAccessDesc access{};
    access.location = how.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    good_ = good_ && driver_.set_access(at_, bytes_, &access, 1) == CUDA_SUCCESS;
  }
  expandable(expandable const&) = delete;
  ~expandable() {
    (void)driver_.unmap(at_, bytes_);
    (void)driver_.free_addresses(at_, bytes_);
  }
  bool good() const { return good_; }
  std::span<int> part(std::size_t first, std::size_t count) const {
    return std::span<int>(reinterpret_cast<int*>(at_), bytes_ / sizeof(int)).subspan(first, count);
  }

 private:
  cx::detail::driver_calls driver_;
  CUdeviceptr at_ = 0;
  std::size_t bytes_;
  bool good_;
};

cx::status failed(gpu::communicator& comm, char const* what) {
  return comm.abort(cx::status::failure(cx::errc::system, comm.rank(), "rank %d: %s", comm.rank(), what));
}

/// Every rank fills its buffer with `mark` + rank, and finds the others' where the registration says they are.
template <class Buffer>
cx::status see_one_another(gpu::communicator& comm, Buffer const& registered, int mark) {
  std::vector<int> values(registered.size(), mark + comm.rank());
  std::vector<int*> where(static_cast<std::size_t>(comm.size()));
  cudaError_t e = cudaMemcpy(registered.data(), values.data(), values.size() * sizeof(int), cudaMemcpyHostToDevice);
  if (e == cudaSuccess) e = cudaMemcpy(where.data(), registered.where().addresses(), where.size() * sizeof(int*), cudaMemcpyDeviceToHost);
  if (cx::status s = gpu::ok(comm, e, "copies"); !s) return s;
  if (cx::status s = comm.barrier(direct); !s) return s;
  for (int r = 0; r < comm.size(); ++r) {
    e = cudaMemcpy(values.data(), where[static_cast<std::size_t>(r)], values.size() * sizeof(int), cudaMemcpyDeviceToHost);
    if (cx::status s = gpu::ok(comm, e, "reading another rank's memory"); !s) return s;
    for (int v : values)
      if (v != mark + r)
        return comm.abort(cx::status::failure(cx::errc::system, r, "rank %d sees %d of rank %d, not %d", comm.rank(), v, r, mark + r));
  }
  return comm.barrier(direct);
}

template <class F>
void ranks(int size, F f, cx::cuda_ipc::options const& options = gpu::small()) {
  cx::status const s = cx::cuda_ipc::run(size, options, [&](gpu::communicator& comm) -> cx::status { return f(comm); });
  CHECK_MESSAGE(s.ok(), std::string(s.what()));
}

cx::status twenty_rounds(gpu::communicator& comm, std::size_t most_mappings) {
  std::size_t const count = (std::size_t{1} << 20) / sizeof(int);
  void* first = nullptr;
  int reused = 0;
  for (int round = 1; round <= 20; ++round) {
    gpu::buffer<int> memory(count);
    reused += memory.all().data() == first;
    first = memory.all().data();
    auto registered = comm.register_buffer(memory.all());
    if (!registered) return registered.error();
    if (cx::status s = see_one_another(comm, *registered, 2 * round * 100); !s) return s;
    if (comm.transport().side().mappings() > most_mappings) return failed(comm, "mappings pile up");
  }
  return reused > 0 || ON_GPU ? cx::status{} : failed(comm, "no address was ever given out again, so this shows nothing");
}

}  // namespace

TEST_CASE("MEM-03: memory freed and allocated anew at the same address is seen as it is, and mappings do not pile up") {
  for (std::size_t idle : {std::size_t{0}, std::size_t{4}}) {
    CAPTURE(idle);
    cx::cuda_ipc::options options = gpu::small();
    options.idle_mappings = idle;
    ranks(
        2, [idle](gpu::communicator& comm) { return twenty_rounds(comm, idle + 1); }, options);
  }
}

TEST_CASE("MEM-04: with a cache of four, 64 buffers of two kinds of memory are each mapped as what they are") {
  cx::cuda_ipc::options options = gpu::small();
  options.idle_mappings = 4;
  ranks(
      2,
      [](gpu::communicator& comm) -> cx::status {
        for (int i = 0; i < 64; ++i) {
          gpu::buffer<int> plain(300);
          expandable pieces(2, true);
          if (!pieces.good()) return failed(comm, "no memory by pieces");
          bool const by_pieces = i % 2 == 1;
          auto registered = comm.register_buffer(by_pieces ? pieces.part(10, 300) : plain.all());
          if (!registered) return registered.error();
          if (cx::status s = see_one_another(comm, *registered, 1000 * i); !s) return s;
          if (comm.transport().side().mappings() > 5) return failed(comm, "more mappings than the cache may hold");
        }
        return {};
      },
      options);
}

#if !ON_GPU  // two devices are to be had of the stand-in only
TEST_CASE("MEM-04: a rank that is a thread needs no mapping, and a registration without a handle lives and ends as any other") {
  ::setenv("STANDIN_DEVICES", "2", 1);
  auto table = cx::in_process_rendezvous::create(2);
  REQUIRE(table.has_value());
  cx::status ends[2];
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      (void)cudaSetDevice(r);
      auto mine = table->of(r);
      cx::cuda_ipc::options options = gpu::small();
      options.device = r;
      auto comm = cx::cuda_ipc::join(mine, options);
      if (!comm) return void(ends[r] = comm.error());
      gpu::buffer<int> memory(1000);
      for (int round = 0; round < 3; ++round) {
        auto registered = comm->register_buffer(memory.first(700));
        ends[r] = registered ? see_one_another(*comm, *registered, round) : registered.error();
        if (!ends[r]) return;
      }
      ends[r] = comm->barrier(direct);
    });
  for (std::thread& t : threads) t.join();
  ::unsetenv("STANDIN_DEVICES");
  for (cx::status const& s : ends) CHECK_MESSAGE(s.ok(), std::string(s.what()));
  CHECK(standin::standin_mappings() == 0);
}
#endif

TEST_CASE("a buffer may be any part of its allocation, and two of one allocation share a mapping") {
  ranks(3, [](gpu::communicator& comm) -> cx::status {
    gpu::buffer<int> memory(5000);
    std::size_t const begin = static_cast<std::size_t>(comm.rank()) * 100 + 7;  // elsewhere on each rank
    auto low = comm.register_buffer(memory.all().subspan(begin, 1000));
    if (!low) return low.error();
    auto high = comm.register_buffer(memory.all().subspan(begin + 2000, 1000));
    if (!high) return high.error();
    if (comm.transport().side().mappings() != 2) return failed(comm, "an allocation was mapped twice");
    if (cx::status s = see_one_another(comm, *low, 100); !s) return s;
    return see_one_another(comm, *high, 200);
  });
}

TEST_CASE("a buffer in expandable memory may lie in any of its pieces, and across them") {
  ranks(3, [](gpu::communicator& comm) -> cx::status {
    expandable memory(3, true);
    if (!memory.good()) return failed(comm, "no memory by pieces");
    std::size_t const per_piece = piece / sizeof(int);
    for (std::size_t first : {std::size_t{5}, per_piece - 10, per_piece + 3, 2 * per_piece - 1}) {
      auto registered = comm.register_buffer(memory.part(first, per_piece));
      if (!registered) return registered.error();
      if (cx::status s = see_one_another(comm, *registered, static_cast<int>(first)); !s) return s;
    }
    return {};
  });
}

TEST_CASE("memory of the library's own is given out again") {
  ranks(2, [](gpu::communicator& comm) -> cx::status {
    int const before = standin::standin_allocations();
    for (int round = 0; round < 10; ++round) {
      auto registered = comm.allocate<int>(900);
      if (!registered) return registered.error();
      if (cx::status s = see_one_another(comm, *registered, round); !s) return s;
    }
    return standin::standin_allocations() <= before + 2 ? cx::status{} : failed(comm, "every round has allocated");
  });
}

TEST_CASE("MEM-03: all-reduces read registered buffers where they lie, out of place and in place, in graphs, and large ones by slots") {
  for (int n = 2; n <= 4; ++n)
    ranks(n, [](gpu::communicator& comm) -> cx::status {
      standin::direct_all_reduces<int, cx::sum>();
      standin::plans<int, cx::sum>();
      gpu::buffer<int> memory(200000), out(200000);
      gpu::stream stream;
      cudaStream_t const on = stream;
      int const size = comm.size(), sum = size * (size + 1) / 2;
      for (std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{60000}, std::size_t{200000}}) {
        auto in = comm.register_buffer(memory.first(count));
        if (!in) return in.error();
        for (bool in_place : {false, true}) {
          std::span<int> const to = in_place ? std::span<int>(*in) : out.first(count);
          std::vector<int> values(count, comm.rank() + 1);
          if (cx::status s = gpu::ok(comm, memory.fill(values), "fill"); !s) return s;
          if (cx::status s = comm.all_reduce(*in, to, cx::sum{}, on); !s) return s;
          if (!in_place)  // again, while others may be at the first one still
            if (cx::status s = comm.all_reduce(*in, to, cx::sum{}, on); !s) return s;
          if (cx::status s = gpu::ok(comm, cudaStreamSynchronize(on), "synchronise"); !s) return s;
          if (cx::status s = comm.status(); !s) return s;
          if (cx::status s = gpu::ok(comm, cudaMemcpy(values.data(), to.data(), count * sizeof(int), cudaMemcpyDeviceToHost), "read"); !s)
            return s;
          for (int v : values)
            if (v != sum) return failed(comm, "a sum is wrong");
          if (cx::status s = comm.barrier(direct); !s) return s;
        }
      }
      return {};
    });
}

TEST_CASE("a buffer that cannot be registered is an error on all ranks, and the group goes on") {
  ranks(2, [](gpu::communicator& comm) -> cx::status {
    std::vector<int> on_host(100);
    gpu::buffer<int> memory(100);
    expandable closed(1, false);
    auto const expect = [&](auto const& made, cx::errc code, char const* part) -> cx::status {
      if (made) return failed(comm, "this was registered");
      if (made.error().code() == code && std::strstr(made.error().what(), part) != nullptr) return {};
      return failed(comm, made.error().what());
    };
    bool const odd = comm.rank() == 1;
    auto const host = comm.register_buffer(odd ? std::span<int>(on_host) : memory.all());
    if (cx::status s = expect(host, cx::errc::invalid_argument, odd ? "device memory" : "rank 1 cannot share"); !s) return s;
    auto const unequal = comm.register_buffer(memory.first(odd ? 50 : 100));
    if (cx::status s = expect(unequal, cx::errc::mismatch, "rank 1 registers a buffer of 200 bytes, rank 0 one of 400"); !s) return s;
    auto const unshared = comm.register_buffer(closed.part(0, 100));
    if (cx::status s = expect(unshared, cx::errc::not_supported, "cannot be shared with other processes"); !s) return s;
    auto whole = comm.register_buffer(memory.all());
    return whole ? see_one_another(comm, *whole, 1) : whole.error();
  });
}
