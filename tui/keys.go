package tui

import "github.com/charmbracelet/bubbles/key"

// intent is what a person wants; keys are one way to say it.
type intent uint8

const (
	noIntent intent = iota
	intentDown
	intentUp
	intentFirst
	intentLast
	intentPageDown
	intentPageUp
	intentNextProblem
	intentPreviousProblem
	intentFilter
	intentSort
	intentReverse
	intentAll
	intentProblems
	intentFocus
	intentPreviousTab
	intentNextTab
	intentOpen
	intentZoom
	intentBack
	intentPause
	intentCopyPath
	intentCopyNonce
	intentLitter
	intentClaim
	intentAcquire
	intentRelease
	intentBreak
	intentSweep
	intentHelp
	intentQuit
	intentInterrupt
	intentSuspend
)

// The intents that do nothing but move the cursor, or scroll.
const (
	firstMove = intentDown
	lastMove  = intentPreviousProblem
)

// binding ties keys to an intent, with the words that the help and the footer say of them.
type binding struct {
	key.Binding
	intent intent
	foot   string // the words in the footer; "": not there
}

func bind(what intent, keys []string, shown, help string) binding {
	return binding{Binding: key.NewBinding(key.WithKeys(keys...), key.WithHelp(shown, help)), intent: what}
}

func (b binding) footed(s string) binding { b.foot = s; return b }

// group is a part of the key map with its head in the help.
type group struct {
	title    string
	bindings []binding
}

// keyMap is the one map from keys to intents. The help and the footer are made from it.
func keyMap() []group {
	return []group{
		{"Look", []binding{
			bind(intentDown, []string{"j", "down"}, "j", "down; in the detail: scroll"),
			bind(intentUp, []string{"k", "up"}, "k", "up"),
			bind(intentFirst, []string{"g", "home"}, "g", "first"),
			bind(intentLast, []string{"G", "end"}, "G", "last"),
			bind(intentPageDown, []string{"ctrl+d", "pgdown"}, "^d", "half a page down"),
			bind(intentPageUp, []string{"ctrl+u", "pgup"}, "^u", "half a page up"),
			bind(intentNextProblem, []string{"n"}, "n", "next problem"),
			bind(intentPreviousProblem, []string{"N"}, "N", "previous problem"),
			bind(intentOpen, []string{"enter"}, "enter", "the whole detail"),
			bind(intentZoom, []string{"z"}, "z", "the whole detail, and back"),
			bind(intentFocus, []string{"tab"}, "tab", "to the detail and back"),
			bind(intentPreviousTab, []string{"["}, "[", "the detail's previous tab"),
			bind(intentNextTab, []string{"]"}, "]", "the detail's next tab"),
			bind(intentBack, []string{"esc"}, "esc", "one step back; never quits"),
		}},
		{"Narrow down", []binding{
			bind(intentFilter, []string{"/"}, "/", "filter: words, "+filterKeys+" beat>30s, !word").footed("filter"),
			bind(intentSort, []string{"s"}, "s", "sort by the next column").footed("sort"),
			bind(intentReverse, []string{"S"}, "S", "sort the other way round"),
			bind(intentAll, []string{"1"}, "1", "all entries"),
			bind(intentProblems, []string{"!", "2"}, "!", "problems only, and back").footed("problems"),
			bind(intentLitter, []string{"4"}, "4", "litter: tokens and temps only, and back"),
			bind(intentPause, []string{"p"}, "p", "pause the picture; it counts what it hides").footed("pause"),
		}},
		{"Take along", []binding{
			bind(intentCopyPath, []string{"y"}, "y", "copy the path (OSC 52)"),
			bind(intentCopyNonce, []string{"Y"}, "Y", "copy the claim id or writer epoch"),
		}},
		{"Change: each opens a plan first, which wants y, or the name typed", []binding{
			bind(intentClaim, []string{"C"}, "C", "claim the lease; this screen holds and renews it").footed("claim"),
			bind(intentAcquire, []string{"A"}, "A", "acquire the lock; this screen holds it and beats").footed("acquire"),
			bind(intentRelease, []string{"R"}, "R", "release what this screen holds").footed("release"),
			bind(intentBreak, []string{"B"}, "B", "break a lease or lock, or remove the token that blocks it").footed("break"),
			bind(intentSweep, []string{"W"}, "W", "sweep away dead tokens; in the litter view temps, too").footed("sweep"),
		}},
		{"This screen", []binding{
			bind(intentHelp, []string{"?"}, "?", "this help").footed("help"),
			bind(intentQuit, []string{"q"}, "q", "quit; asks when something is held").footed("quit"),
			bind(intentInterrupt, []string{"ctrl+c"}, "^c", "quit; twice: at once"),
			bind(intentSuspend, []string{"ctrl+z"}, "^z", "suspend; refused while something is held"),
		}},
	}
}

// keyPress is one key as the terminal sent it.
type keyPress struct {
	name   string // "j", "ctrl+c", "enter", or the characters of a chunk
	text   string // the characters, for an input line
	single bool   // exactly one key, typed and not pasted
	pasted bool
}

func (k keyPress) String() string { return k.name }

// intentOf says what a key means in the list. What changes something is never meant by a chunk of characters,
// which can be a paste or a torn report of the mouse; moving about is.
func (m *model) intentOf(k keyPress) intent {
	for _, g := range m.keys {
		for _, b := range g.bindings {
			if k.single && key.Matches(k, b.Binding) {
				return b.intent
			}
		}
	}
	return noIntent
}
