package kernels

import (
	"fmt"
	"math"
)

// RouterScores is what a router makes of its logits.
type RouterScores int

// The values of [RouterScores].
const (
	SoftmaxScores RouterScores = iota // probabilities over all experts
	SigmoidScores                     // of each expert by itself, as DeepSeek-V3
)

// GroupChoice is how a router values a group of experts.
type GroupChoice int

// The values of [GroupChoice].
const (
	GroupByBest    GroupChoice = iota // by its best score, as DeepSeek-V2
	GroupByBestTwo                    // by the sum of its two best, as DeepSeek-V3
)

// RouterOptions say how tokens choose experts. The zero value of all but Chosen is the usual case:
// the experts of the highest probabilities, weighted by these.
type RouterOptions struct {
	Chosen int // how many experts a token has
	Scores RouterScores
	// Normalize divides the scores of the chosen by their sum. With SoftmaxScores that is a softmax
	// over the logits of the chosen.
	Normalize bool
	Epsilon   float64 // is added to that sum
	Scale     float64 // of the weights; 0 means 1
	// Groups cuts the experts into as many groups of one size. Experts are chosen from the
	// KeptGroups best of them. 0 means no groups.
	Groups, KeptGroups int
	GroupChoice        GroupChoice
}

// Routing lets each token choose experts, and weighs them:
//
//	s = softmax(logits) or σ(logits)
//	chosen = the Chosen experts of the highest s + bias, of ties those with the lowest numbers
//	w_j = Scale·s_j     or     Scale·s_j / (Σ s of the chosen + Epsilon)
//
// The bias decides who is chosen and is no part of the weights. A score that is NaN is chosen last.
type Routing struct {
	Logits Tensor // (tokens, experts)
	Bias   Tensor // (experts), of the wide type of Logits, or left out by the zero Tensor
	RouterOptions
}

// Assignment says which experts tokens have chosen, and sorts these choices by expert. A choice has
// the number token·Chosen + j. All are int32 and row-major.
type Assignment struct {
	Offsets Tensor // (experts+1): an expert's choices are sorted to the places from Offsets_e on and before Offsets_e+1
	Experts Tensor // (tokens, Chosen): the chosen, the highest score first
	Order   Tensor // (tokens·Chosen): the choice at each place; of one expert's, in ascending order
	Places  Tensor // (tokens, Chosen): the place of each choice
}

// AssignmentSize is how many numbers an assignment has.
func AssignmentSize(tokens, experts, chosen int) int { return experts + 1 + 3*tokens*chosen }

// AssignmentOf is an assignment whose tensors lie end to end in a vector of [AssignmentSize] int32.
func AssignmentOf(all Tensor, experts, chosen int) Assignment {
	choices := (all.Shape[0] - experts - 1) / 3
	from := func(at, n int) Tensor { return all.Slice(0, at, at+n) }
	return Assignment{
		Offsets: from(0, experts+1),
		Experts: from(experts+1, choices).Reshape(choices/chosen, chosen),
		Order:   from(experts+1+choices, choices),
		Places:  from(experts+1+2*choices, choices).Reshape(choices/chosen, chosen),
	}
}

// RouteKernels choose experts for tokens, and bring rows to them and back. 16-bit tensors are
// computed in float32 and rounded once. Sums are added in an order that depends on the shape alone.
type RouteKernels interface {
	// Route writes the weights, (tokens, Chosen) of the wide type of the logits, and the
	// assignment.
	Route(r *Routing, weights Tensor, a Assignment) error
	// RouteBackward computes the gradient of the logits from that of the weights. Of the assignment
	// it reads Experts.
	RouteBackward(r *Routing, a Assignment, dWeights, dLogits Tensor) error
	// Dispatch copies the row of each choice's token to the place of the choice, (tokens·Chosen,
	// C), multiplied by the choice's factor if there are factors, (tokens, Chosen) of the wide
	// type:
	//
	//	y_i = factor_c·x_t     for the choice c = Order_i of token t
	Dispatch(x, factors Tensor, a Assignment, y Tensor) error
	// Combine sums the rows of each token's choices, (tokens, C), multiplied by factors if there
	// are some: y_t = Σ_j factor_tj·x_i, i = Places_tj.
	Combine(x, factors Tensor, a Assignment, y Tensor) error
	// CombineFactors computes the gradient of Combine's factors: dFactor_tj = x_i·dy_t, i =
	// Places_tj.
	CombineFactors(x, dy Tensor, a Assignment, dFactors Tensor) error
	// BalanceLoss computes the loss that is least where tokens use all experts alike,
	//
	//	loss = experts · Σ_e (choices of e / tokens)·(mean of softmax(logits)_e over tokens)
	//
	// a scalar of the wide type. Offsets is (layers, experts+1): logits, (tokens, experts), may be
	// of several layers, one behind the other, and tokens counts all.
	BalanceLoss(logits, offsets, loss Tensor) error
	// BalanceLossBackward computes the gradient of the logits from that of the loss. The choices
	// are constants to it.
	BalanceLossBackward(logits, offsets, dLoss, dLogits Tensor) error
}

// Validate returns what is wrong with the options for a number of experts.
func (o *RouterOptions) Validate(experts int, dtype DType) error {
	switch {
	case experts > maxExperts:
		return fmt.Errorf("there are %d experts, it needs to be at most %d", experts, maxExperts)
	case o.Chosen < 1 || o.Chosen > experts:
		return fmt.Errorf("chosen is %d, it needs to be from 1 to the %d experts", o.Chosen, experts)
	case o.Chosen > maxChosen:
		return fmt.Errorf("chosen is %d, it needs to be at most %d", o.Chosen, maxChosen)
	case o.Scores != SoftmaxScores && o.Scores != SigmoidScores:
		return fmt.Errorf("scores is %d, it needs to be SoftmaxScores or SigmoidScores", o.Scores)
	case o.GroupChoice != GroupByBest && o.GroupChoice != GroupByBestTwo:
		return fmt.Errorf("group choice is %d, it needs to be GroupByBest or GroupByBestTwo", o.GroupChoice)
	case !(o.Epsilon >= 0) || math.IsInf(o.Epsilon, 0):
		return fmt.Errorf("epsilon is %v, it needs to be 0 or positive", o.Epsilon)
	case math.IsNaN(o.Scale) || math.IsInf(o.Scale, 0):
		return fmt.Errorf("scale is %v, it needs to be finite", o.Scale)
	}
	if err := validateNumber("scale", o.Scale, dtype); err != nil {
		return err
	}
	if o.Groups == 0 && o.KeptGroups == 0 {
		return nil
	}
	switch {
	case o.Groups < 1 || experts%o.Groups != 0:
		return fmt.Errorf("groups is %d, it needs to divide the %d experts", o.Groups, experts)
	case o.KeptGroups < 1 || o.KeptGroups > o.Groups:
		return fmt.Errorf("kept groups is %d, it needs to be from 1 to the %d groups", o.KeptGroups, o.Groups)
	case o.Chosen > o.KeptGroups*(experts/o.Groups):
		return fmt.Errorf("chosen is %d, it needs to be at most the %d experts of %d kept groups", o.Chosen, o.KeptGroups*(experts/o.Groups), o.KeptGroups)
	case o.GroupChoice == GroupByBestTwo && experts/o.Groups < 2:
		return fmt.Errorf("groups is %d, for GroupByBestTwo each needs at least two of the %d experts", o.Groups, experts)
	}
	return nil
}

// maxChosen is the most experts that a token may choose, which kernels keep beside each other, and
// maxExperts the most that there may be.
const maxChosen, maxExperts = 64, 4096

// WeightScale is Scale, or 1 where that is 0.
func (o *RouterOptions) WeightScale() float64 {
	if o.Scale == 0 {
		return 1
	}
	return o.Scale
}

// Validate returns what is wrong with the problem. Tensors may lack data.
func (r *Routing) Validate() error {
	if r == nil {
		return errNoProblem
	}
	if err := validateRouterLogits(r.Logits); err != nil {
		return err
	}
	experts := r.Logits.Shape[1]
	if r.Bias.IsSet() && (len(r.Bias.Shape) != 1 || r.Bias.Shape[0] != experts || r.Bias.DType != r.Logits.DType.Wide()) {
		return fmt.Errorf("bias is %v of shape %v, it needs to be %v of shape [%d]", r.Bias.DType, r.Bias.Shape, r.Logits.DType.Wide(), experts)
	}
	return r.RouterOptions.Validate(experts, r.Logits.DType)
}

func validateRouterLogits(t Tensor) error {
	if err := t.validateFloat("logits"); err != nil {
		return err
	}
	if len(t.Shape) != 2 || t.Shape[1] < 1 || t.Shape[1] > maxExperts {
		return fmt.Errorf("logits has shape %v, it needs two axes (tokens, experts), of up to %d experts", t.Shape, maxExperts)
	}
	return t.validateLayout("logits")
}

// operands lists an assignment's tensors for so many tokens.
func (a *Assignment) operands(tokens, experts, chosen int) []operand {
	of := func(name string, t Tensor, shape ...int) operand {
		return operand{name: name, tensor: t, shape: shape, dtypes: [2]DType{I32}, layout: dense}
	}
	return []operand{
		of("offsets", a.Offsets, experts+1), of("experts", a.Experts, tokens, chosen),
		of("order", a.Order, tokens*chosen), of("places", a.Places, tokens, chosen),
	}
}

// Check returns what is wrong with a call of Route.
func (r *Routing) Check(weights Tensor, a Assignment) error {
	if err := r.Validate(); err != nil {
		return err
	}
	tokens, experts := r.Logits.Shape[0], r.Logits.Shape[1]
	return checkOperands(append(a.operands(tokens, experts, r.Chosen), r.logits(), r.bias(),
		wide("weights", weights, []int{tokens, r.Chosen}, r.Logits.DType))...)
}

func (r *Routing) logits() operand {
	return like("logits", r.Logits, r.Logits.Shape, r.Logits.DType)
}

func (r *Routing) bias() operand {
	return wide("bias", r.Bias, r.Bias.Shape, r.Logits.DType).optional()
}

// CheckBackward returns what is wrong with a call of RouteBackward.
func (r *Routing) CheckBackward(a Assignment, dWeights, dLogits Tensor) error {
	if err := r.Validate(); err != nil {
		return err
	}
	tokens, experts := r.Logits.Shape[0], r.Logits.Shape[1]
	return checkOperands(a.operands(tokens, experts, r.Chosen)[1], r.logits(), r.bias(),
		wide("dWeights", dWeights, []int{tokens, r.Chosen}, r.Logits.DType),
		writtenLike("dLogits", dLogits, r.Logits.Shape, r.Logits.DType))
}

// checkMove checks a call that moves rows: perToken has a row a token, perChoice one a choice.
func (a *Assignment) checkMove(perToken, perChoice, factors operand) error {
	if err := perToken.tensor.validateFloat(perToken.name); err != nil {
		return err
	}
	if len(a.Places.Shape) != 2 || len(perToken.tensor.Shape) != 2 {
		return fmt.Errorf("places has shape %v and %s %v, they need two axes (tokens, chosen) and (tokens, features)",
			a.Places.Shape, perToken.name, perToken.tensor.Shape)
	}
	tokens, chosen, features := a.Places.Shape[0], a.Places.Shape[1], perToken.tensor.Shape[1]
	dtype := perToken.tensor.DType
	perToken.shape, perChoice.shape, factors.shape = []int{tokens, features}, []int{tokens * chosen, features}, a.Places.Shape
	perToken.dtypes[0], perChoice.dtypes[0], factors.dtypes[0] = dtype, dtype, dtype.Wide()
	factors.layout = dense
	return checkOperands(append(a.operands(tokens, 0, chosen)[2:], perToken, perChoice, factors)...)
}

func moved(name string, t Tensor, l layout) operand { return operand{name: name, tensor: t, layout: l} }

// CheckDispatch returns what is wrong with a call of Dispatch.
func (a *Assignment) CheckDispatch(x, factors, y Tensor) error {
	return a.checkMove(moved("x", x, contiguousRows), moved("y", y, writtenRows), moved("factors", factors, dense).optional())
}

// CheckCombine returns what is wrong with a call of Combine.
func (a *Assignment) CheckCombine(x, factors, y Tensor) error {
	return a.checkMove(moved("y", y, writtenRows), moved("x", x, contiguousRows), moved("factors", factors, dense).optional())
}

// CheckCombineFactors returns what is wrong with a call of CombineFactors.
func (a *Assignment) CheckCombineFactors(x, dy, dFactors Tensor) error {
	return a.checkMove(moved("dy", dy, contiguousRows), moved("x", x, contiguousRows), moved("dFactors", dFactors, dense))
}

// balanceOperands checks what both calls of the balance loss are given.
func balanceOperands(logits, offsets Tensor) ([]operand, error) {
	if err := validateRouterLogits(logits); err != nil {
		return nil, err
	}
	if len(offsets.Shape) != 2 || offsets.Shape[1] != logits.Shape[1]+1 {
		return nil, fmt.Errorf("offsets has shape %v, it needs (layers, %d): one more than experts", offsets.Shape, logits.Shape[1]+1)
	}
	return []operand{like("logits", logits, logits.Shape, logits.DType), offsetsOperand(offsets)}, nil
}

// CheckBalanceLoss returns what is wrong with a call of BalanceLoss.
func CheckBalanceLoss(logits, offsets, loss Tensor) error {
	operands, err := balanceOperands(logits, offsets)
	if err != nil {
		return err
	}
	return checkOperands(append(operands, wide("loss", loss, scalar, logits.DType))...)
}

// CheckBalanceLossBackward returns what is wrong with a call of BalanceLossBackward.
func CheckBalanceLossBackward(logits, offsets, dLoss, dLogits Tensor) error {
	operands, err := balanceOperands(logits, offsets)
	if err != nil {
		return err
	}
	return checkOperands(append(operands, wide("dLoss", dLoss, scalar, logits.DType), writtenLike("dLogits", dLogits, logits.Shape, logits.DType))...)
}
