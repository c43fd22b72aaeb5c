"""What the benches' trainings are: a model, its optimizer and its data."""
import contextlib

BATCHES = 4  # that take turns: a training does not see one batch for ever


class Training:
    """A model, its optimizer and its data; step() does one step and gives the loss, still on the device."""

    def __init__(self, model, optimizer, loss, batches, cast=contextlib.nullcontext, scaler=None):
        self.model, self.optimizer, self.loss, self.batches = model, optimizer, loss, batches
        self.cast, self.scaler, self.number = cast, scaler, 0

    @staticmethod
    def within(function):
        """Calls it in the thread that runs the steps."""
        function()

    def step(self):
        inputs, target = self.batches[self.number % len(self.batches)]
        self.number += 1
        self.optimizer.zero_grad(set_to_none=True)
        with self.cast():
            loss = self.loss(self.model(*inputs), target)
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return loss.detach()
