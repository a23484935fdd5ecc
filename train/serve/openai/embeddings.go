package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net/http"
)

type embeddingRequest struct {
	Model      string          `json:"model"`
	Input      json.RawMessage `json:"input"`
	Format     string          `json:"encoding_format"`
	Dimensions *int            `json:"dimensions"`
	User       json.RawMessage `json:"user"`
}

type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"`
}

func (h *handler) embeddings(w *response, r *http.Request) error {
	var q embeddingRequest
	if err := h.read(w, r, &q); err != nil {
		return err
	}
	if h.Embed == nil || q.Model != h.EmbedName {
		return noModel(q.Model)
	}
	var list texts
	switch err := json.Unmarshal(q.Input, &list); {
	case err != nil:
		return wrong("input", "input needs to be a text or several; tokens are not supported")
	case len(list) == 0 || len(list) > h.Limits.Texts:
		return wrong("input", "input has %d texts, it needs to have from 1 to %d", len(list), h.Limits.Texts)
	case q.Format != "" && q.Format != "float" && q.Format != "base64":
		return wrong("encoding_format", "encoding_format is %q, it needs to be float or base64", q.Format)
	}
	vectors, tokens, err := h.Embed(r.Context(), list)
	if err != nil {
		return err
	}
	var data []embedding
	for i, vector := range vectors {
		if q.Dimensions != nil && *q.Dimensions != len(vector) {
			return wrong("dimensions", "dimensions is %d, the model has %d", *q.Dimensions, len(vector))
		}
		e := embedding{"embedding", i, vector}
		if q.Format == "base64" {
			var b bytes.Buffer
			if err := binary.Write(&b, binary.LittleEndian, vector); err != nil {
				return err
			}
			e.Embedding = base64.StdEncoding.EncodeToString(b.Bytes())
		}
		data = append(data, e)
	}
	return write(w, map[string]any{"object": "list", "data": data, "model": h.EmbedName, "usage": map[string]int{"prompt_tokens": tokens, "total_tokens": tokens}})
}
