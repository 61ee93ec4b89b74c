package tui

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestWhatIsSavedIsGivenBack(t *testing.T) {
	garbage := debug.SetGCPercent(100)
	defer debug.SetGCPercent(garbage)
	processors := runtime.GOMAXPROCS(0)
	begin, undo := thrift()
	begin()
	begin()
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d processors", n)
	}
	undo()
	if n, g := runtime.GOMAXPROCS(0), debug.SetGCPercent(100); n != processors || g != 100 {
		t.Errorf("%d processors, %d %% garbage", n, g)
	}
	// Who is late saves nothing any more.
	if begin(); runtime.GOMAXPROCS(0) != processors {
		t.Error("it is saved after the end")
	}
	begin, undo = thrift()
	undo()
	if begin(); runtime.GOMAXPROCS(0) != processors {
		t.Error("it is saved after an end without a beginning")
	}
}
