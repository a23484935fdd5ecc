package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// hfNames are the names of special tokens, in the order in which they are added.
var hfNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// hfTokenJSON is a token as tokenizer_config.json has it: a text, or an object.
type hfTokenJSON struct {
	Content                             string
	SingleWord                          bool `json:"single_word"`
	LStrip, RStrip, Normalized, Special bool
}

func (t *hfTokenJSON) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, &t.Content) == nil {
		return nil
	}
	type plain hfTokenJSON
	return json.Unmarshal(text, (*plain)(t))
}

func (t *hfTokenJSON) token(id int) hfAddedJSON {
	return hfAddedJSON{id, t.Content, t.SingleWord, t.LStrip, t.RStrip, t.Normalized, t.Special}
}

// readTokens reads the tokens that the small files name: those with ids in added_tokens_decoder or
// added_tokens.json, and special ones.
func (f *hfFolder) readTokens() error {
	f.named = map[string]hfAddedJSON{}
	for name, text := range f.fields {
		var token hfTokenJSON
		if strings.HasSuffix(name, "_token") && json.Unmarshal(text, &token) == nil && token.Content != "" {
			token.Special, token.Normalized = true, false
			f.named[name] = token.token(0)
		}
	}
	var byName map[string]hfTokenJSON
	if json.Unmarshal(f.fields["extra_special_tokens"], &byName) == nil {
		for name, token := range byName {
			token.Special, token.Normalized = true, false
			f.named[name] = token.token(0)
		}
	}
	for _, name := range []string{"extra_special_tokens", "additional_special_tokens"} {
		var list []hfTokenJSON
		if json.Unmarshal(f.fields[name], &list) != nil || len(list) == 0 {
			continue
		}
		for _, token := range list {
			token.Special = true
			f.extra = append(f.extra, token.token(0))
		}
		break
	}
	if err := f.readAdded(); err != nil {
		return err
	}
	slices.SortFunc(f.added, func(a, b hfAddedJSON) int { return a.ID - b.ID })
	return nil
}

func (f *hfFolder) readAdded() error {
	if text := f.fields["added_tokens_decoder"]; !isNull(text) {
		var byID map[string]hfTokenJSON
		if err := json.Unmarshal(text, &byID); err != nil {
			return fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %w", err)
		}
		for id, a := range byID {
			n, err := strconv.Atoi(id)
			if err != nil {
				return fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %q is no id", id)
			}
			f.added = append(f.added, a.token(n))
		}
		return nil
	}
	var ids map[string]int
	if _, err := f.read("added_tokens.json", &ids); err != nil {
		return err
	}
	special := map[string]bool{}
	for _, token := range append(slices.Collect(maps.Values(f.named)), f.extra...) {
		special[token.Content] = true
	}
	for content, id := range ids {
		f.added = append(f.added, hfAddedJSON{ID: id, Content: content, Normalized: !special[content], Special: special[content]})
	}
	return nil
}

// setDefaults names the special tokens of a class that the folder says nothing of.
func (f *hfFolder) setDefaults(tokens map[string]string) {
	for name, content := range tokens {
		if _, said := f.fields[name]; !said {
			f.named[name] = hfAddedJSON{Content: content, Special: true}
		}
	}
}

// hfOwnTemplate lists the classes for which add_bos_token and add_eos_token mean nothing.
var hfOwnTemplate = map[string]bool{
	"BartTokenizer": true, "BertTokenizer": true, "DistilBertTokenizer": true, "ElectraTokenizer": true, "BigBirdTokenizer": true, "CamembertTokenizer": true,
	"CLIPTokenizer": true, "DebertaTokenizer": true, "DebertaV2Tokenizer": true, "FunnelTokenizer": true, "LayoutLMv3Tokenizer": true,
	"MBartTokenizer": true, "MBart50Tokenizer": true, "MPNetTokenizer": true, "NllbTokenizer": true, "PegasusTokenizer": true,
	"RobertaTokenizer": true, "T5Tokenizer": true, "WhisperTokenizer": true, "XLMRobertaTokenizer": true, "XLNetTokenizer": true,
}

// addEnds sets the template where the folder says whether texts begin and end with special tokens.
func (f *hfFolder) addEnds() {
	_, begins := f.fields["add_bos_token"]
	_, ends := f.fields["add_eos_token"]
	if !begins && !ends || hfOwnTemplate[f.class] {
		return
	}
	bos, eos := f.named["bos_token"].Content, f.named["eos_token"].Content
	if !f.bool("add_bos_token", false) {
		bos = ""
	}
	if !f.bool("add_eos_token", false) {
		eos = ""
	}
	f.around = aroundEach(bos, eos)
}

// aroundEach is a template of tokens before and behind each text, empty ones for none.
func aroundEach(bos, eos string) *hfTemplate {
	t := &hfTemplate{}
	for typeID, text := range []string{"$A", "$B"} {
		for _, name := range []string{bos, text, eos} {
			if name != "" {
				t.pair = append(t.pair, hfTemplateName{name, typeID})
			}
		}
	}
	t.single = t.pair[:len(t.pair)/2]
	return t
}

// hfTemplate is what goes around one text and two.
type hfTemplate struct {
	single, pair []hfTemplateName
	roberta      hfObject // RoBERTa's processor, which has the same tokens around a text, nil for none
}

// hfTemplateName is a special token, or the text $A or $B.
type hfTemplateName struct {
	name   string
	typeID int
}

// inTemplate is a template of names with the type 0.
func inTemplate(single, pair []string) *hfTemplate {
	named := func(names []string) []hfTemplateName {
		list := make([]hfTemplateName, len(names))
		for i, name := range names {
			list[i].name = name
		}
		return list
	}
	return &hfTemplate{single: named(single), pair: named(pair)}
}

// bracketed is BERT's template.
func bracketed(cls, sep string) *hfTemplate {
	t := inTemplate([]string{cls, "$A", sep}, []string{cls, "$A", sep, "$B", sep})
	t.pair[3].typeID, t.pair[4].typeID = 1, 1
	return t
}

// object is the template as a tokenizer.json has it.
func (t *hfTemplate) object(ids func(string) (int, bool)) (hfObject, error) {
	special := hfObject{}
	var missing error
	write := func(names []hfTemplateName) []any {
		list := []any{}
		for _, part := range names {
			if part.name == "$A" || part.name == "$B" {
				list = append(list, hfObject{"Sequence": hfObject{"id": part.name[1:], "type_id": part.typeID}})
				continue
			}
			id, found := ids(part.name)
			if !found {
				missing = fmt.Errorf("the template needs the token %q, which there is not", part.name)
			}
			special[part.name] = hfObject{"id": part.name, "ids": []int{id}, "tokens": []string{part.name}}
			list = append(list, hfObject{"SpecialToken": hfObject{"id": part.name, "type_id": part.typeID}})
		}
		return list
	}
	single, pair := write(t.single), write(t.pair)
	if t.roberta != nil && missing == nil {
		for name, part := range map[string]hfTemplateName{"cls": t.single[0], "sep": t.single[2]} {
			id, _ := ids(part.name)
			t.roberta[name] = []any{part.name, id}
		}
		return t.roberta, nil
	}
	return hfObject{"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}, missing
}

// hfVocabulary finds ids of tokens in a tokenizer.json. It reads the model only if it has to.
type hfVocabulary struct {
	file  map[string]json.RawMessage
	added map[string]int
	next  int // the first id that no added token has
	ids   map[string]int
}

func (v *hfVocabulary) read() error {
	if v.ids != nil {
		return nil
	}
	var model struct{ Vocab json.RawMessage }
	if err := json.Unmarshal(v.file["model"], &model); err != nil {
		return fmt.Errorf("tokenizer.json: model: %w", err)
	}
	if json.Unmarshal(model.Vocab, &v.ids) == nil {
		return nil
	}
	var list []hfScoreJSON
	if err := json.Unmarshal(model.Vocab, &list); err != nil {
		return fmt.Errorf("tokenizer.json: model: %w", err)
	}
	v.ids = make(map[string]int, len(list))
	for id, entry := range list {
		v.ids[entry.token] = id
	}
	return nil
}

// id is the id of a token, a new one if there is none.
func (v *hfVocabulary) id(token string) (int, error) {
	if err := v.read(); err != nil {
		return 0, err
	}
	id, found := v.ids[token]
	if !found {
		id = max(v.next, len(v.ids))
		v.next = id + 1
	}
	return id, nil
}

// find is the id of a token that there is.
func (v *hfVocabulary) find(token string) (int, bool) {
	if id, found := v.added[token]; found {
		return id, true
	}
	if v.read() != nil {
		return 0, false
	}
	id, found := v.ids[token]
	return id, found
}

// special are the special tokens that have a name, and the further ones.
func (f *hfFolder) special() []hfAddedJSON {
	var list []hfAddedJSON
	for _, name := range hfNames {
		list = append(list, f.named[name])
	}
	for _, name := range slices.Sorted(maps.Keys(f.named)) {
		if !slices.Contains(hfNames, name) {
			list = append(list, f.named[name])
		}
	}
	return append(list, f.extra...)
}

// complete gives a tokenizer.json the tokens and the template that it lacks.
func (f *hfFolder) complete(file map[string]json.RawMessage) (changed bool, err error) {
	var list []hfAddedJSON
	if text := file["added_tokens"]; !isNull(text) {
		if err := json.Unmarshal(text, &list); err != nil {
			return false, fmt.Errorf("tokenizer.json: added_tokens: %w", err)
		}
	}
	place := map[string]int{} // in list
	v := &hfVocabulary{file: file, added: map[string]int{}}
	for i, a := range list {
		place[a.Content], v.added[a.Content], v.next = i, a.ID, max(v.next, a.ID+1)
	}
	for _, a := range f.added {
		v.next = max(v.next, a.ID+1)
		if _, known := place[a.Content]; known || a.Content == "" {
			continue
		}
		place[a.Content], v.added[a.Content] = len(list), a.ID
		list, changed = append(list, a), true
	}
	had := len(list)
	for _, a := range f.special() {
		if f.plainSpecial {
			a = hfAddedJSON{Content: a.Content, Special: true}
		}
		i, known := place[a.Content]
		switch {
		case a.Content == "":
		case !known:
			if a.ID, err = v.id(a.Content); err != nil {
				return false, err
			}
			place[a.Content], v.added[a.Content] = len(list), a.ID
			list, changed = append(list, a), true
		case i >= had || f.plainSpecial: // a token with two names is as the last one has it
			a.ID, a.Special = list[i].ID, a.Special || list[i].Special
			list[i], changed = a, true
		case !list[i].Special:
			list[i].Special, changed = true, true
		}
	}
	if changed {
		if file["added_tokens"], err = json.Marshal(list); err != nil {
			return false, err
		}
	}
	if f.around == nil {
		return changed, nil
	}
	template, err := f.around.object(v.find)
	if err != nil {
		return false, err
	}
	file["post_processor"], err = json.Marshal(template)
	return true, err
}
