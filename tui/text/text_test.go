package text_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"holdfast/tui/text"
)

func TestSafe(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "inspect/8eb3/writer.lease", "inspect/8eb3/writer.lease"},
		{"empty", "", ""},
		{"quotes and backslashes stay", `it's "C:\x"`, `it's "C:\x"`},
		{"screen clearing name", "a\x1b[2J.lock", `a\x1b[2J.lock`},
		{"title and clipboard", "\x1b]52;c;aGk=\a", `\x1b]52;c;aGk=\a`},
		{"no UTF-8", "\xff.lock", `\xff.lock`},
		{"8-bit CSI", "\x9b2J", `\x9b2J`},
		{"CSI as a code point", "\u009b2J", `\u009b2J`},
		{"truncated character", "a\xe2\x82", `a\xe2\x82`},
		{"surrogate", "\xed\xa0\x80", `\xed\xa0\x80`},
		{"line ends and tab", "a\r\nb\tc\x7f\x00", `a\r\nb\tc\x7f\x00`},
		{"line separators", "a\u2028b\u0085c", `a\u2028b\u0085c`},
		{"reordered extension", "gpj\u202egnp.lock", `gpj\u202egnp.lock`},
		{"isolates", "\u2066a\u2069", `\u2066a\u2069`},
		{"zero width", "a\u200bb\u200dc\ufeffd\u2060", `a\u200bb\u200dc\ufeffd\u2060`},
		{"soft hyphen", "a\u00adb", `a\u00adb`},
		{"tag characters", "a\U000e0041", `a\U000e0041`},
		{"variation selectors", "\u263a\ufe0f\U000e0100", "\u263a" + `\ufe0f\U000e0100`},
		{"invisible letters", "\u3164\u115f\uffa0\u2800", `\u3164\u115f\uffa0\u2800`},
		{"invisible mark", "a\u034f", `a\u034f`},
		{"other spaces", "a\u00a0b\u3000c", `a\u00a0b\u3000c`},
		{"private and unassigned", "\ue000\U0010ffff\u0378", `\ue000\U0010ffff\u0378`},
		{"skin tone", "👍🏽", `👍\U0001f3fd`},
		{"the replacement character itself", "\ufffd", "\ufffd"},
		{"scripts", "日本語 ключ ελ 한글 עב عر ทำ நி é", "日本語 ключ ελ 한글 עב عر ทำ நி é"},
		{"combining mark", "e\u0301", "e\u0301"},
		{"mark without a character", "\u0301e", `\u0301e`},
		{"mark after an escape", "\x1b\u0301", `\x1b\u0301`},
		{"pile of marks", "e" + strings.Repeat("\u0301", 6), "e" + strings.Repeat("\u0301", 4) + `\u0301\u0301`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := text.Safe(c.in); got != c.want {
				t.Errorf("Safe(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
}

// U+00DB is C3 9B in UTF-8: on a terminal of another character set the second byte is CSI.
func TestSafeASCIIHasNoContinuationBytes(t *testing.T) {
	if got, want := (text.Style{ASCII: true}).Safe("Û日e\u0301\U0001f512"), `\u00db\u65e5e\u0301\U0001f512`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzSafe(f *testing.F) {
	for _, s := range []string{"", "a\x1b[2J", "\xff", "日本", "e\u0301\u0301", "\u202e", "\u0301", "👍🏽", "\\x1b", "🇩🇪"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, style := range []text.Style{{}, {ASCII: true}} {
			got := style.Safe(s)
			if !utf8.ValidString(got) {
				t.Fatalf("%+v: Safe(%q) = %q is no UTF-8", style, s, got)
			}
			for _, r := range got {
				if unicode.In(r, unicode.C, unicode.Zl, unicode.Zp) || style.ASCII && r > '~' {
					t.Fatalf("%+v: Safe(%q) = %q lets %U through", style, s, got, r)
				}
			}
			if again := style.Safe(got); again != got {
				t.Fatalf("%+v: Safe(%q) = %q, and again %q", style, s, got, again)
			}
			if ansi.Strip(got) != got {
				t.Fatalf("%+v: Safe(%q) = %q holds an escape sequence", style, s, got)
			}
		}
	})
}

func TestWidth(t *testing.T) {
	for s, want := range map[string]int{
		"": 0, "abc": 3, "…": 1, "日本": 4, "e\u0301": 1, "🔒": 2, "ทำ": 2,
		"🇩": 2, // one of the two ways to count says 1
	} {
		if got := text.Width(s); got != want {
			t.Errorf("Width(%q) = %d, want %d", s, got, want)
		}
	}
}

func TestCutAndPad(t *testing.T) {
	uni, ascii := text.Style{}, text.Style{ASCII: true}
	for _, c := range []struct {
		name      string
		got, want string
	}{
		{"fits", uni.Cut("abc", 3), "abc"},
		{"cut", uni.Cut("abcd", 3), "ab…"},
		{"cut in ASCII", ascii.Cut("abcd", 3), "ab~"},
		{"one cell", uni.Cut("abc", 1), "…"},
		{"no cell", uni.Cut("abc", 0), ""},
		{"negative", uni.Cut("abc", -5), ""},
		{"wide character does not fit", uni.Cut("日本語", 4), "日…"},
		{"wide character fits", uni.Cut("日本語", 5), "日本…"},
		{"marks go with their character", uni.Cut("e\u0301e\u0301e\u0301", 2), "e\u0301…"},
		{"middle fits", uni.CutMiddle("abc", 3), "abc"},
		{"middle", uni.CutMiddle("inspect/8eb3d10c/writer.lease", 22), "inspect/8e…riter.lease"},
		{"middle in ASCII", ascii.CutMiddle("abcdef", 4), "a~ef"},
		{"middle of one cell", uni.CutMiddle("abc", 1), "…"},
		{"middle of two cells", uni.CutMiddle("abc", 2), "…c"},
		{"middle of none", uni.CutMiddle("abc", 0), ""},
		{"middle, wide", uni.CutMiddle("日本語日本語", 6), "日…語"},
		{"middle, wide, odd room", uni.CutMiddle("日本語日本語", 7), "日…本語"},
		{"an escape is one", uni.Cut(text.Safe("ab\x1bcd"), 6), "ab…"},
		{"an escape fits", uni.Cut(text.Safe("ab\x1bcd"), 7), `ab\x1b…`},
		{"a long escape", ascii.CutMiddle(ascii.Safe("a\u202eb日c"), 14), `a~b\u65e5c`},
		{"an escape at either side", uni.CutMiddle(text.Safe("\x1b\x1b\x1b\x1b"), 10), `\x1b…\x1b`},
		{"a short escape", uni.Cut(text.Safe("a\nb"), 3), "a…"},
		{"a backslash is no escape", uni.Cut(`C:\users`, 5), `C:\u…`},
		{"what reads as an escape, with a mark", uni.Cut("\\x41\u0301b", 5), "\\x41\u0301b"},
		{"what reads as an escape, with a mark, cut", uni.Cut("\\x41\u0301bc", 5), "\\x41\u0301…"},
		{"pad", uni.Pad("ab", 4), "ab  "},
		{"pad cuts", uni.Pad("abcde", 4), "abc…"},
		{"pad after a wide cut", uni.Pad("日本語", 4), "日… "},
		{"pad to nothing", uni.Pad("ab", -1), ""},
		{"pad left", uni.PadLeft("42", 4), "  42"},
		{"pad left cuts", ascii.PadLeft("12345", 4), "123~"},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, c.got, c.want)
		}
	}
}

func FuzzCut(f *testing.F) {
	for i, s := range []string{"", "abc", "日本語", "e\u0301e\u0301", "ทำทำ", "🇩🇪🇩🇪🇩", "கிகி", "क्षक्ष", "한글\u1100\u1161", "a\x1b\u202e\xff", "\n\n\n"} {
		f.Add(s, i)
	}
	f.Fuzz(func(t *testing.T, s string, w int) {
		bytes := s
		s, w = text.Safe(s), w%200
		head := text.Head(s, w)
		whole := strings.Contains(bytes, `\`) // what reads as an escape and is none
		for i := 0; i <= len(bytes) && !whole; i++ {
			whole = text.Safe(bytes[:i]) == head
		}
		if !whole {
			t.Fatalf("Head(%q, %d) = %q ends within a character", s, w, head)
		}
		for _, style := range []text.Style{{}, {ASCII: true}} {
			for name, got := range map[string]string{
				"Cut": style.Cut(s, w), "CutMiddle": style.CutMiddle(s, w),
				"Pad": style.Pad(s, w), "PadLeft": style.PadLeft(s, w),
			} {
				// Terminals count in either of these ways.
				if widest := max(text.Width(got), ansi.StringWidth(got), ansi.StringWidthWc(got)); widest > max(0, w) {
					t.Fatalf("%+v: %s(%q, %d) = %q takes %d cells", style, name, s, w, got, widest)
				}
				if strings.HasPrefix(name, "Pad") && text.Width(got) != max(0, w) {
					t.Fatalf("%+v: %s(%q, %d) = %q is not full", style, name, s, w, got)
				}
			}
			if text.Width(s) <= w && (style.Cut(s, w) != s || style.CutMiddle(s, w) != s) {
				t.Fatalf("%+v: %q fits into %d cells and was cut", style, s, w)
			}
		}
	})
}
