package proc

import (
	"time"

	"golang.org/x/sys/windows"
)

// SinceBoot returns the tick count, to some 16 ms: it runs on in suspend and no clock step moves it. Its readings
// compare within one boot only. Tests' fake time does not touch it.
func SinceBoot() time.Duration { return windows.DurationSinceBoot() }
