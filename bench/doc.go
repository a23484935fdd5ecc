// Command bench measures Stheno on the machine it runs on, and writes what it found: report.md to
// read, report.json with every sample, and plots.
//
//	go run ./bench                            everything, some ten minutes on two cores
//	go run ./bench -quick                     a look, about a minute
//	go run ./bench -run attention/forward     cases whose name matches; names are in the first columns of the report
//	go run ./bench -peers                     beside PyTorch and GoMLX, where they are installed
//	go run -tags gpu ./bench                  the GPU too
//	go run ./bench -compare old.json new.json what changed; fails where something became slower
//	go run ./bench -readme report.json -as NAME
//	                                          puts a report into bench/results/NAME and its figures into README.md
//	                                          (-outputs 'job/*.txt' adds what other programs printed in the same job)
//
// # How it measures
//
// A ceiling is sampled right beside everything that it bounds: a loop of multiply-adds in
// registers, on as many threads, for what arithmetic bounds, a copy of memory for the rest.
// Whatever is compared takes turns, sample by sample, in one run. So a machine that slows down for
// a minute slows all of them, and their ratios say what their times do not. Everything is measured
// in three sweeps, minutes apart, so that the quartiles of a figure are also those of the machine's
// moods (-sweeps). Tables have medians, quartiles and the number of samples; a report whose
// ceilings moved too much says so at its top. -compare calls worse what is so by the U test, by
// more than -threshold, and by more than the sweeps of a run differ among themselves.
//
// # Peers
//
// With -peers, others compute the same problems from the same numbers, in processes of their own
// that answer over a pipe (peer.go), and their results are compared with ours. PyTorch is what
// -python finds. GoMLX is the program of the module in bench/gomlx, built when needed, or the one
// that -gomlx names. What cannot be had is listed as missing in the report.
//
// # Where it can run
//
// The program needs neither its source nor the network, so that it can be built on one machine and
// carried to another. The exceptions are -readme, and -peers for GoMLX without -gomlx. The sizes of
// the cases suit two cores; -threads lists the numbers of threads to measure with.
package main
