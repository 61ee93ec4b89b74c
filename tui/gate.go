package tui

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// leaveTerminal undoes all modes that the screen uses.
const leaveTerminal = ansi.ResetStyle + ansi.ResetModeBracketedPaste +
	ansi.ResetModeMouseButtonEvent + ansi.ResetModeMouseAnyEvent + ansi.ResetModeMouseExtSgr +
	ansi.ResetModeAltScreenSaveCursor + ansi.ShowCursor

// gate is where all output goes through: one writer at a time, nothing after the terminal was given back, and a
// terminal that takes nothing any more is told.
type gate struct {
	out  io.Writer
	gone func(error)

	mu     sync.Mutex
	closed bool
}

func newGate(out io.Writer, gone func(error)) *gate { return &gate{out: out, gone: gone} }

// Write passes a piece on whole.
func (g *gate) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return len(b), nil
	}
	n, err := g.out.Write(b)
	if err != nil {
		g.closed = true
		go g.gone(err)
	}
	return n, err
}

func (g *gate) write(s string) { _, _ = io.WriteString(g, s) }

// leave takes the terminal out of everything that the screen put it into, and lets nothing through after that.
// A terminal that does not take output is not waited for.
func (g *gate) leave() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.mu.Lock()
		defer g.mu.Unlock()
		if !g.closed {
			_, _ = io.WriteString(g.out, leaveTerminal)
			g.closed = true
		}
	}()
	select {
	case <-done:
	case <-time.After(stopGrace / 4):
	}
}

// close lets nothing through any more.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// output is the gate, and a terminal to Bubble Tea if there is one behind it.
func (g *gate) output() io.Writer {
	if f, ok := g.out.(*os.File); ok {
		return gateFile{g, f}
	}
	return g
}

type gateFile struct {
	*gate
	file *os.File
}

// Read, Close and Fd make it a terminal: Bubble Tea measures it and sets its modes.
func (f gateFile) Read(b []byte) (int, error) { return f.file.Read(b) }
func (f gateFile) Close() error               { return nil } // who opened it closes it
func (f gateFile) Fd() uintptr                { return f.file.Fd() }
