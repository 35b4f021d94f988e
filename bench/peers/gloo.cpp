// SPDX-License-Identifier: Apache-2.0
/// A rank of Gloo over TCP on 127.0.0.1.
/// Arguments: side channel, milliseconds, sizes, rank, number of ranks, folder to meet in, variant: an algorithm, and after a `+` how
/// its connections wait: `sync` blocks, `busy` polls. Gloo allows that with its older algorithms, which work in place.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <exception>
#include <memory>
#include <string>

#include "measure.hpp"

namespace {

class library {
 public:
  library(std::shared_ptr<gloo::Context> context, std::string const& algorithm) : context_(std::move(context)), algorithm_(algorithm) {}

  float* prepare(float* in, float* out, std::size_t count) {
    if (algorithm_ == "ring") return newer(gloo::AllreduceOptions::Algorithm::RING, in, out, count);
    if (algorithm_ == "bcube") return newer(gloo::AllreduceOptions::Algorithm::BCUBE, in, out, count);
    int const elements = static_cast<int>(count);
    std::vector<float*> const vectors{in};
    if (algorithm_ == "old_ring")
      older_ = std::make_unique<gloo::AllreduceRing<float>>(context_, vectors, elements);
    else if (algorithm_ == "old_ring_chunked")
      older_ = std::make_unique<gloo::AllreduceRingChunked<float>>(context_, vectors, elements);
    else if (algorithm_ == "old_halving_doubling")
      older_ = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context_, vectors, elements);
    else
      peers::give_up("no such algorithm");
    return in;
  }
  void call() {
    if (older_ != nullptr)
      older_->run();
    else
      gloo::allreduce(*newer_);
  }
  void finish() {
    older_ = nullptr;
    newer_ = nullptr;
  }

 private:
  float* newer(gloo::AllreduceOptions::Algorithm algorithm, float* in, float* out, std::size_t count) {
    newer_ = std::make_unique<gloo::AllreduceOptions>(context_);
    newer_->setAlgorithm(algorithm);
    newer_->setInput(in, count);
    newer_->setOutput(out, count);
    newer_->setReduceFunction([](void* to, void const* a, void const* b, std::size_t n) { gloo::sum<float>(to, a, b, n); });
    return out;
  }

  std::shared_ptr<gloo::Context> context_;
  std::string algorithm_;
  std::unique_ptr<gloo::Algorithm> older_;
  std::unique_ptr<gloo::AllreduceOptions> newer_;
};

bool run(int count, char** arguments) {
  peers::request const asked = peers::request::of(count, arguments, 8);
  int const rank = std::atoi(arguments[4]), size = std::atoi(arguments[5]);
  std::string const variant = arguments[7], algorithm = variant.substr(0, variant.find('+'));
  peers::side_channel side(asked.side, rank, size);

  gloo::transport::tcp::attr here("127.0.0.1");
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(here);
  gloo::rendezvous::FileStore store(arguments[6]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->setTimeout(std::chrono::seconds(60));
  context->connectFullMesh(store, device);
  if (variant != algorithm)
    for (int r = 0; r < size; ++r)
      if (r != rank) context->getPair(r)->setSync(true, variant == algorithm + "+busy");

  library measured(context, algorithm);
  bool const right = peers::bench(measured, side, asked).run();
  side.barrier();
  return right;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    bool const right = run(count, arguments);
    // Without destructors: connections in sync mode wait there for what their peer has closed.
    std::fflush(stdout);
    ::_exit(right ? 0 : 1);
  } catch (std::exception const& e) {
    peers::give_up(e.what());
  }
}
