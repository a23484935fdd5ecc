// Package nccl joins the GPUs of several processes by NVIDIA's NCCL, over package driver. It is
// compiled with the build tag gpu; without the tag it is empty.
//
// The library is looked for when a program first asks for a network: libnccl.so.2 where the
// system's loader finds it, in the folders of Python's wheels, or where the variable STHENO_NCCL
// says.
//
// A network's work runs in the order of its device's work. What is asked for by a method that ends
// in Later runs beside kernels that leave room for it, see driver.Queue.
package nccl
