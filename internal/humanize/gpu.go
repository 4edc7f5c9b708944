package humanize

import (
	"slices"
	"strconv"
	"strings"
)

// GPUs writes GPUs of one kind: "4× A100 80GB". Without a memory it leaves that out
// ("4× A100"), without a model it counts ("4 GPUs"), and none is "no GPU".
func GPUs[T ~int64](n int, model string, memory T) string {
	switch {
	case n == 0:
		return "no GPU"
	case model == "" && memory == 0:
		return Count(n, "GPU")
	}

	return Times(n, GPU(model, memory))
}

// GPU writes one kind of GPU: "A100 80GB". Vendors round what their cards have, so a
// card that reports 79.6 GiB is written as the 80GB it is sold with. A remark in parentheses
// at the end of the model, such as "(fake)", stays at the end: "A100 80GB (fake)".
func GPU[T ~int64](model string, memory T) string {
	const gib = 1 << 30

	remark := ""
	if at := strings.LastIndex(model, " ("); at > 0 && strings.HasSuffix(model, ")") {
		model, remark = model[:at], model[at:]
	}

	name := Model(model)
	if name == "" {
		name = "GPU"
	}

	if memory > 0 {
		name += " " + strconv.FormatInt((int64(memory)+gib/2)/gib, 10) + "GB"
	}

	return name + remark
}

// Times writes several of one thing: "4× A100".
func Times(n int, thing string) string { return Integer(int64(n)) + "× " + thing }

// Model writes a GPU's name as people say it: "A100" for "NVIDIA A100-SXM4-80GB".
func Model(name string) string {
	words := strings.FieldsFunc(name, func(c rune) bool { return c == ' ' || c == '-' })

	vendors := []string{"nvidia", "tesla", "geforce", "quadro"}
	for len(words) > 1 && slices.Contains(vendors, strings.ToLower(words[0])) {
		words = words[1:]
	}

	for i, word := range words {
		upper := strings.ToUpper(word)
		formFactor := strings.HasPrefix(upper, "SXM") || strings.HasPrefix(upper, "HBM") ||
			upper == "PCIE" || upper == "NVL"
		if i > 0 && (formFactor || isMemory(upper)) {
			return strings.Join(words[:i], " ")
		}
	}

	return strings.Join(words, " ")
}

func isMemory(word string) bool {
	digits, ok := strings.CutSuffix(word, "GB")
	_, err := strconv.Atoi(digits)

	return ok && err == nil
}
