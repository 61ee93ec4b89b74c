//go:build !linux

package proc

// pidfds are there on Linux only.
type pidfds struct{ ended chan []int }

func openPidfds(Source) *pidfds { return nil }

func (*pidfds) watch(pids []int) (ended, left []int) { return nil, pids }

func (*pidfds) close() {}
