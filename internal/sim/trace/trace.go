// Package trace makes the workloads of the simulator: it reads recorded ones and
// generates others from a seed.
//
// A reader streams: it holds one row at a time, so that a log of millions of jobs
// costs no more memory than a short one. A row that cannot be read is an error
// that names file, line and column, or is skipped and counted if the caller asks
// for that. A generator draws everything from its seed and gives the same jobs
// each time. Open finds the reader of a file; tables.go holds the published job
// tables that generators and benchmarks share. Its parts: nodes has the machines
// and when they come and go, goodput the speeds of Pollux and Sia jobs, rows the
// reading of text. The simulator, the benchmarks and the command line use the
// package. It decides nothing about where jobs go and runs nothing.
package trace
