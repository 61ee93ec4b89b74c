//go:build darwin || dragonfly || freebsd || openbsd

package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot returns the monotonic clock. It runs on in suspend on macOS; the BSDs do not promise that.
// Its readings compare within one boot only. Tests' fake time does not touch it.
func SinceBoot() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
