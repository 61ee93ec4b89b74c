package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot returns the boot-time clock of our time namespace: it runs on in suspend and no clock step moves it. Its
// readings compare within one boot and one time namespace only. Tests' fake time does not touch it.
func SinceBoot() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
