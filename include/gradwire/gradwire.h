/* Gradwire: makes the gradients of distributed training small on the wire, and moves them.
 *
 *   context.h    memory, threads, kernels
 *   codec.h      tensor -> frame -> tensor, and adding frames up
 *   link.h       messages between members
 *   link_mpi.h   the same over MPI; a program includes it by itself, because it needs mpi.h
 *   exchange.h   the average of all members' gradients, beside backward
 *   pserver.h    the parameter server: init, push and pull by key
 *   status.h     what became of a call: statuses and their sentences
 *
 * and experimental, which may change with a new MINOR version (docs/abi.md):
 *
 *   plan.h       which tensors travel together, and whether compression pays
 *   probe.h      measures what a plan is made of
 *
 * The headers are C17 and C++-safe. */
#ifndef GRADWIRE_GRADWIRE_H
#define GRADWIRE_GRADWIRE_H

#include <gradwire/codec.h>
#include <gradwire/context.h>
#include <gradwire/exchange.h>
#include <gradwire/link.h>
#include <gradwire/plan.h>
#include <gradwire/probe.h>
#include <gradwire/pserver.h>
#include <gradwire/status.h>

#endif
