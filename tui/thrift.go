package tui

import (
	"runtime"
	"runtime/debug"
	"sync"
)

// smallHeap is the garbage, in percent of what is in use, that a screen lets pile up: it makes little, and stays open
// for days.
const smallHeap = 50

// thrift returns a function that makes this process do with one processor and little memory, for after the first look at
// everything: from then on there is never more than one thing to do at a time, and the search of other processors for
// work costs more than the work. undo ends that.
func thrift() (begin, undo func()) {
	var once sync.Once
	restore := func() {}
	begin = func() {
		once.Do(func() {
			processors, garbage := runtime.GOMAXPROCS(1), debug.SetGCPercent(smallHeap)
			restore = func() {
				runtime.GOMAXPROCS(processors)
				debug.SetGCPercent(garbage)
			}
		})
	}
	return begin, func() {
		once.Do(func() {})
		restore()
	}
}
