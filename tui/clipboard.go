package tui

import "github.com/charmbracelet/x/ansi"

// screenLimit is how many bytes GNU screen hands on in one piece; it drops longer ones.
const screenLimit = 700

// clipboardSequence asks the terminal to put s into the clipboard: through ssh as it is, through a multiplexer wrapped.
// tmux gets it twice, because one of two settings of its decides which of them comes through, and neither is on
// everywhere: set-clipboard takes the plain one, allow-passthrough the wrapped one.
func clipboardSequence(s, multiplexer string) string {
	plain := ansi.SetSystemClipboard(s)
	switch multiplexer {
	case "tmux":
		return plain + ansi.TmuxPassthrough(plain)
	case "screen":
		return ansi.ScreenPassthrough(plain, screenLimit)
	default:
		return plain
	}
}
