"""What the paper prints of the models in Tables 2, 3 and 4, and of all systems but its own."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """The paper's numbers of one model; None where it prints none."""

    perplexity: float | None = None  # of a word piece, on newstest2013
    bleu: float | None = None
    f1: float | None = None  # on section 23 of the Wall Street Journal
    parameters: float | None = None  # millions
    steps: int | None = None
    hours: float | None = None  # of training, on DEVICES
    flops: float | None = None  # of training, as Table 2 estimates it

    @property
    def estimate(self) -> float | None:
        """Training FLOPs by the paper's rule: time x devices x sustained FLOP/s (§6.1)."""
        return None if self.hours is None else self.hours * 3600 * DEVICES * SUSTAINED


DEVICES = 8  # P100 (§5.2)
SUSTAINED = 9.5e12  # single-precision FLOP/s of a P100, as the paper puts it


@dataclass(frozen=True)
class System:
    """Another system that a table compares with."""

    table: int
    group: str  # the language pair, or what the parser was trained on
    name: str
    published: Published


DE, FR = "English to German", "English to French"  # the columns of Table 2
WSJ, SEMI = "WSJ only, discriminative", "semi-supervised"  # the groups of Table 4

SYSTEMS = [
    System(2, DE, "ByteNet", Published(bleu=23.75)),
    System(2, DE, "GNMT + RL", Published(bleu=24.6, flops=2.3e19)),
    System(2, DE, "ConvS2S", Published(bleu=25.16, flops=9.6e18)),
    System(2, DE, "MoE", Published(bleu=26.03, flops=2.0e19)),
    System(2, DE, "GNMT + RL ensemble", Published(bleu=26.30, flops=1.8e20)),
    System(2, DE, "ConvS2S ensemble", Published(bleu=26.36, flops=7.7e19)),
    System(2, FR, "Deep-Att + PosUnk", Published(bleu=39.2, flops=1.0e20)),
    System(2, FR, "GNMT + RL", Published(bleu=39.92, flops=1.4e20)),
    System(2, FR, "ConvS2S", Published(bleu=40.46, flops=1.5e20)),
    System(2, FR, "MoE", Published(bleu=40.56, flops=1.2e20)),
    System(2, FR, "Deep-Att + PosUnk ensemble", Published(bleu=40.4, flops=8.0e20)),
    System(2, FR, "GNMT + RL ensemble", Published(bleu=41.16, flops=1.1e21)),
    System(2, FR, "ConvS2S ensemble", Published(bleu=41.29, flops=1.2e21)),
    System(4, WSJ, "Vinyals & Kaiser et al. 2014", Published(f1=88.3)),
    System(4, WSJ, "Petrov et al. 2006", Published(f1=90.4)),
    System(4, WSJ, "Zhu et al. 2013", Published(f1=90.4)),
    System(4, WSJ, "Dyer et al. 2016", Published(f1=91.7)),
    System(4, SEMI, "Zhu et al. 2013", Published(f1=91.3)),
    System(4, SEMI, "Huang & Harper 2009", Published(f1=91.3)),
    System(4, SEMI, "McClosky et al. 2006", Published(f1=92.1)),
    System(4, SEMI, "Vinyals & Kaiser et al. 2014", Published(f1=92.1)),
    System(4, "multi-task", "Luong et al. 2015", Published(f1=93.0)),
    System(4, "generative", "Dyer et al. 2016", Published(f1=93.3)),
]
