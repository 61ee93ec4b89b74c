//go:build !unix

package watch

import (
	"runtime"
	"time"
)

// processorTime moves as if this process used all processors that it may: looks then come rarely rather than often.
func processorTime() time.Duration {
	return time.Duration(time.Now().UnixNano()) * time.Duration(min(runtime.GOMAXPROCS(0), 4))
}
