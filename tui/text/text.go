// Package text is what the screen and the verbs share: text made harmless for a terminal, widths in cells,
// durations, the words and symbols of states, the marks of flags, and what a terminal can show.
//
// Everything here is a pure function of its arguments: nothing reads the environment, the clock or a file.
package text

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Style says how much a terminal can show. The zero value is a UTF-8 terminal.
type Style struct {
	ASCII bool // nothing but ASCII may be printed
}

// maxMarks is how many combining marks are left on one character. Living languages need three or four; more
// of them pile up over the lines above and below.
const maxMarks = 4

// Safe returns s so that it does nothing but stand there on a UTF-8 terminal: it is Style{}.Safe.
func Safe(s string) string { return Style{}.Safe(s) }

// Safe returns s so that it does nothing but stand there on a terminal: on one line, in its own cells, in
// the order in which it is stored. For JSON, which wants names exact, it is the wrong thing.
//
// Letters, digits, punctuation, symbols and the ASCII space stay as they are, in every script. A combining
// mark stays with the character before it, up to four; one that has none would join what is printed before s.
// Everything else is shown as Go writes it in a string: control characters (`\x1b`, `\n`, `\u0085`), bytes
// that are no UTF-8 (`\xff`), and what is invisible or reorders text: bidirectional controls (`\u202e`) and all
// other format characters, zero-width ones, variation selectors, fillers, other spaces and line separators,
// private and unassigned code points. So are emoji skin tones, for whose width terminals disagree. In ASCII
// so is all that is not ASCII, because a continuation byte is a control character to an 8-bit terminal.
//
// A backslash stays a backslash: the result is for eyes, it cannot be turned back. Safe(Safe(s)) is Safe(s).
func (st Style) Safe(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	marks := maxMarks // on the character before; at the limit there is none to carry one
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		mark := unicode.Is(unicode.M, r)
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x`)
			b.WriteString(strconv.FormatUint(uint64(s[i]), 16))
			marks = maxMarks
		case !visible(r), st.ASCII && r >= utf8.RuneSelf, mark && marks == maxMarks:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
			marks = maxMarks
		default:
			b.WriteString(s[i : i+size])
			if mark {
				marks++
			} else {
				marks = 0
			}
		}
		i += size
	}
	return b.String()
}

// plain reports whether s is printable ASCII, as nearly all text here is.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// visible reports whether r is seen where it stands, and has one width that terminals agree on.
func visible(r rune) bool {
	switch {
	case r >= '\U0001f3fb' && r <= '\U0001f3ff': // emoji skin tones
		return false
	case unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		return false // of the letters and marks some are as invisible as a format character
	default:
		return unicode.IsPrint(r) && r != '\u2800' // a Braille pattern without a dot
	}
}

// Width returns how many cells s takes. s is safe text; what terminals count in two ways, by characters or
// by what is seen as one, is counted as the wider.
func Width(s string) int {
	if plain(s) {
		return len(s)
	}
	width := 0
	for s != "" {
		cluster, w := first(s)
		width += w
		s = s[len(cluster):]
	}
	return width
}

// first returns what is seen as the first character of s, which is not empty, and its width. What Safe shows for one
// character is one: half of it would read as another.
func first(s string) (cluster string, width int) {
	// Only what is not ASCII joins a character before it: most text needs no tables.
	if c := s[0]; c >= ' ' && c < 0x7f && c != '\\' && (len(s) == 1 || s[1] < utf8.RuneSelf) {
		return s[:1], 1
	}
	return firstOf(s)
}

// firstOf is first by the tables.
func firstOf(s string) (cluster string, width int) {
	before := max(0, escape(s)-1) // its last digit may carry a mark, where it stands on disk like that
	cluster, width = ansi.FirstGraphemeCluster(s[before:], ansi.GraphemeWidth)
	width = max(width, ansi.StringWidthWc(cluster))
	return s[:before+len(cluster)], before + width
}

// escape is the length of what Safe shows for one character at the beginning of s, 0 where there is none.
func escape(s string) int {
	if len(s) < 2 || s[0] != '\\' {
		return 0
	}
	digits := 0
	switch s[1] {
	case 'a', 'b', 'f', 'n', 'r', 't', 'v':
		return 2
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	default:
		return 0
	}
	if len(s) < 2+digits || strings.Trim(s[2:2+digits], "0123456789abcdef") != "" {
		return 0
	}
	return 2 + digits
}

// Ellipsis is what stands for text that was cut out: one cell.
func (st Style) Ellipsis() string {
	if st.ASCII {
		return "~"
	}
	return "…"
}

// Cut returns the beginning of s that fits into w cells, with an ellipsis if that is not all of it. It is
// never wider than w, and narrower where a wide character or what Safe shows for one (`\u202e`) does not fit:
// neither is cut apart. s is safe text.
func (st Style) Cut(s string, w int) string {
	if Width(s) <= w {
		return s
	}
	if w < 1 {
		return ""
	}
	return Head(s, w-1) + st.Ellipsis()
}

// CutMiddle is like Cut, but takes the middle out: of a path, both the start and the file name stay. Where
// the room is odd, the end gets more of it.
func (st Style) CutMiddle(s string, w int) string {
	if Width(s) <= w {
		return s
	}
	if w < 1 {
		return ""
	}
	start := Head(s, (w-1)/2)
	return start + st.Ellipsis() + Tail(s, w-1-Width(start))
}

// Pad returns s cut or filled with spaces on the right to exactly w cells; none if w is negative.
func (st Style) Pad(s string, w int) string {
	s = st.Cut(s, w)
	return s + strings.Repeat(" ", max(0, w-Width(s)))
}

// PadLeft is Pad with the spaces on the left, for numbers.
func (st Style) PadLeft(s string, w int) string {
	s = st.Cut(s, w)
	return strings.Repeat(" ", max(0, w-Width(s))) + s
}

// Head returns the longest beginning of s within w cells. s is safe text.
func Head(s string, w int) string {
	end := 0
	for end < len(s) {
		cluster, width := first(s[end:])
		if width > w {
			break
		}
		w -= width
		end += len(cluster)
	}
	return s[:end]
}

// Tail returns the longest end of s within w cells. s is safe text.
func Tail(s string, w int) string {
	for left := Width(s); left > w && s != ""; {
		cluster, width := first(s)
		left -= width
		s = s[len(cluster):]
	}
	return s
}
