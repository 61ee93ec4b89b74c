package text

import "strings"

// StyleFor returns the style for a terminal in the environment env, which is os.Getenv or stands for it: ASCII
// if that is asked for or the locale is not UTF-8.
//
// The locale is the first of LC_ALL, LC_CTYPE and LANG that is not empty. It has to say something else than
// UTF-8, as C, POSIX and de_DE do: where nothing is set, as in containers, under cron and on Windows, the
// terminal at the other end is a UTF-8 one.
func StyleFor(env func(string) string, ascii bool) Style {
	for _, name := range [...]string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := strings.ToLower(env(name)); locale != "" {
			utf8 := strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
			return Style{ASCII: ascii || !utf8}
		}
	}
	return Style{ASCII: ascii}
}

// The values of --color.
const (
	ColorAuto   = "auto"
	ColorAlways = "always"
	ColorNever  = "never"
)

// Color reports whether to print colours. when is the value of --color; any other than always and never is
// auto. env is os.Getenv or stands for it; terminal says whether the output is one.
//
// For auto, the first of these decides: NO_COLOR not empty, no; CLICOLOR_FORCE neither empty nor 0, yes; no
// terminal, TERM dumb, or CLICOLOR 0, no; else yes.
func Color(when string, env func(string) string, terminal bool) bool {
	force := env("CLICOLOR_FORCE")
	switch {
	case when == ColorAlways:
		return true
	case when == ColorNever, env("NO_COLOR") != "":
		return false
	case force != "" && force != "0":
		return true
	default:
		return terminal && env("TERM") != "dumb" && env("CLICOLOR") != "0"
	}
}

// Multiplexer names what the terminal of the environment env is shown in: "tmux", "screen", or "" for neither, or where
// that is on the other side of an ssh, which hands no variables on.
func Multiplexer(env func(string) string) string {
	switch {
	case env("TMUX") != "":
		return "tmux"
	case env("STY") != "":
		return "screen"
	default:
		return ""
	}
}
