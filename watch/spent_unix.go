//go:build unix

package watch

import (
	"time"

	"golang.org/x/sys/unix"
)

// processorTime is what this process has used of all processors so far; zero if the system does not say.
func processorTime() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
